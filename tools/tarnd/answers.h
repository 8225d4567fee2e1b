// Requests as the engine works on them. One Answer is one request: for each prompt a session is
// created (or restored under its name), fed, forked for further choices, and generates; then all
// are destroyed. Its KV stays in the engine's index of prefixes, so the next request reuses it.
//
//   creating -> fed -> (computed -> forked) -> generating -> done -> (saved) -> destroyed
//
// At any of these points the client may go away, or the engine may refuse or end: then what is open
// is cancelled and destroyed, and nothing is said any more.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/api/tarn.h"
#include "runtime/api/tarn_explain.h"
#include "tools/tarnd/engine_port.h"
#include "tools/tarnd/exchange.h"
#include "tools/tarnd/fields.h"
#include "tools/tarnd/histogram.h"

namespace tarn::daemon {

// A request to the engine. Its texts are submitted as they are, so they outlive the calls.
struct AnswerPlan {
  bool is_chat = false;
  std::string messages_json, arguments_json;  // of a chat
  bool has_generation_prompt = true, has_chunks = false;
  std::vector<Prompt> prompts;      // of a completion
  std::vector<std::string> chunks;  // in front of each prompt
  f32 recompute = TARN_RECOMPUTE_AUTO;
  u32 n_choices = 1;  // of each prompt
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  bool reads_alone = false;  // no token is generated
  std::vector<std::string> stops;
  std::vector<tarn_logit_bias> biases;
  std::string tenant, session;  // "": the default tenant; no kept session
  bool is_background = false;

  u32 n_prompts() const { return is_chat ? 1 : static_cast<u32>(prompts.size()); }
};

struct AnswerSummary {
  u64 n_prompt_tokens = 0, n_generated = 0;
  u64 n_from_memory = 0, n_from_disk = 0;
  u64 n_placed = 0, n_recomputed = 0;  // tokens of chunks
  u64 prefill_ns = 0, decode_ns = 0;
  u64 n_select_steps = 0;
  f64 kv_read_ratio = 1;
  tarn_explanation explanation = TARN_INIT(tarn_explanation);  // of the last prompt
};

// Takes the events of an answer, in this order: begun, then token, text and done of each choice,
// then finished. failed instead of what would come next. None of it after the client is gone.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void begun(const AnswerSummary& summary) = 0;  // which has the prompt's tokens alone
  virtual void token(u32 choice, const tarn_event& event) = 0;
  virtual void text(u32 choice, std::string_view text) = 0;
  // `is_last`: no other choice goes on; the summary is whole.
  virtual void done(u32 choice, int32_t finish, const AnswerSummary& summary, bool is_last) = 0;
  virtual void finished(const AnswerSummary& summary) = 0;
  virtual void failed(const HttpError& error) = 0;
};

class Answers;

class Answer {
 public:
  Answer(Answers& all, AnswerPlan plan, std::unique_ptr<AnswerSink> sink);
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() = default;

  void start();
  // The client is gone.
  void abandon();
  void fail(const HttpError& error);
  void on_event(u32 choice, const tarn_event& event);
  const AnswerPlan& plan() const { return plan_; }

 private:
  enum class Stage : u8 { none, opening, open, generating, done, closing, closed };
  struct Lane {
    tarn_session* session = nullptr;
    Stage stage = Stage::none;
    bool is_new = true;        // not restored
    int32_t status = TARN_OK;  // of an answer that ended early
    int32_t reason = TARN_REASON_NONE;
  };
  using Step = void (Answer::*)(u32 choice, const tarn_event& reply);

  void call(EnginePort::Submit submit, u32 choice, Step step);
  void create(u32 choice);
  void restored(u32 choice, const tarn_event& reply);
  void created(u32 choice, const tarn_event& reply);
  void opened(u32 choice);
  void kept(u32 choice, const tarn_event& reply);
  void feed(u32 choice);
  void fed(u32 choice, const tarn_event& reply);
  void computed(u32 choice, const tarn_event& reply);
  void forked(u32 choice, const tarn_event& reply);
  void generate(u32 choice);
  void generating(u32 choice, const tarn_event& reply);
  void begin();
  void done(u32 choice, const tarn_event& event);
  void ended_early(u32 choice, const tarn_event& reply);
  void read(u32 choice);
  void explain(u32 choice);
  void lane_done(u32 choice, int32_t finish);
  void close_all();
  void close(u32 choice);
  void saved(u32 choice, const tarn_event& reply);
  void closed(u32 choice, const tarn_event& reply);
  void check_end();
  tarn_session_options session_options() const;
  HttpError refusal(const tarn_event& reply) const;
  // Nothing more is asked of the engine for it.
  bool is_over() const { return sink_ == nullptr || failure_.has_value(); }

  Answers& all_;
  AnswerPlan plan_;
  std::unique_ptr<AnswerSink> sink_;  // nullptr: over
  std::unique_ptr<AnswerSink> past_sink_;
  std::vector<const char*> stop_texts_;
  std::vector<tarn_part> parts_;  // of the prompts, each with its chunks
  std::vector<Lane> lanes_;       // choices of the first prompt first
  std::vector<u32> forks_left_;
  AnswerSummary summary_;
  u32 n_pending_ = 0, n_undone_ = 0;
  bool has_begun_ = false;
  std::optional<HttpError> failure_;  // of a kept session's request: told when all is closed
};

// All answers, and whose the engine's sessions are.
class Answers {
 public:
  struct Totals {
    u64 n_prompt_tokens = 0, n_reused_tokens = 0, n_generated = 0;
    u64 prefill_ns = 0, decode_ns = 0;
    Histogram wait, between_tokens;
    tarn_explanation explanation = TARN_INIT(tarn_explanation);  // of the last answer
  };

  explicit Answers(EnginePort& port) : port_(port) {}
  // Returns nullptr if the kept session is in use: the sink was told.
  Answer* start(AnswerPlan plan, std::unique_ptr<AnswerSink> sink);
  void on_event(const tarn_event& event);
  // Ends all of them. What is kept is saved.
  void fail_all(const HttpError& error);
  u64 n_running() const { return answers_.size(); }
  const Totals& totals() const { return totals_; }
  std::function<void()> on_idle;  // the last one has ended

 private:
  friend class Answer;
  struct Owner {
    Answer* answer;
    u32 choice;
  };

  EnginePort& port_;
  std::unordered_map<Answer*, std::unique_ptr<Answer>> answers_;
  std::unordered_map<tarn_session*, Owner> owners_;
  std::set<std::pair<std::string, std::string>> kept_names_;  // tenant and name
  Totals totals_;
};

}  // namespace tarn::daemon
