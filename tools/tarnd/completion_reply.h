// An answer in OpenAI's form: one object, or server-sent events, of /v1/chat/completions and
// /v1/completions, with llama-server's `timings` and our `tarn`.
//
// Logprobs list the tokens whose text was sent, one that a stop string has cut among them: those of
// a stop string, and the model's end token, are not there. In a stream a token comes with the piece
// that has the last byte of its text. usage counts all tokens that were generated.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/support/json.h"
#include "tools/tarnd/answers.h"

namespace tarn::daemon {

struct ReplyForm {
  bool is_chat = false, streams = false, includes_usage = false, has_logprobs = false;
  std::string model;                    // our own name, whatever was asked for
  std::string tenant, session, select;  // as shown in `tarn`
  tarn_engine* engine = nullptr;        // for the pieces of tokens
};

class CompletionReply : public AnswerSink {
 public:
  CompletionReply(std::shared_ptr<Exchange> exchange, ReplyForm form, u32 n_choices);

  void begun(const AnswerSummary& summary) override;
  void token(u32 choice, const tarn_event& event) override;
  void text(u32 choice, std::string_view text) override;
  void done(u32 choice, int32_t finish, const AnswerSummary& summary, bool is_last) override;
  void finished(const AnswerSummary& summary) override;
  void failed(const HttpError& error) override;

 private:
  struct Logprob {
    u32 token;
    f32 logprob;
    std::vector<tarn_logprob> top;
    u64 begin, end;    // its bytes in the answer's text
    u64 n_before = 0;  // code points before it: text_offset
  };
  struct Choice {
    std::string text;
    std::vector<Logprob> logprobs;            // not yet written
    u64 n_token_bytes = 0;                    // text of the tokens so far
    std::string begun;                        // bytes of a character that is not whole yet
    u64 n_text_bytes = 0, n_text_points = 0;  // of the text so far
    int32_t finish = TARN_FINISH_NONE;
  };

  void note(const AnswerSummary& summary);
  void begin_object(tools::JsonLine& json) const;
  void send_piece(u32 choice, std::string_view text, const char* finish,
                  const AnswerSummary* summary);
  // With the first n_logprobs.
  void write_choice(tools::JsonLine& json, u32 choice, std::string_view text, const char* finish,
                    u64 n_logprobs);
  void write_whole(const AnswerSummary& summary);
  void write_logprobs(tools::JsonLine& json, std::span<const Logprob> logprobs) const;
  void write_chat_logprobs(tools::JsonLine& json, std::span<const Logprob> logprobs) const;
  void write_text_logprobs(tools::JsonLine& json, std::span<const Logprob> logprobs) const;
  void write_end(tools::JsonLine& json, const AnswerSummary& summary) const;
  void write_usage(tools::JsonLine& json, const AnswerSummary& summary) const;
  std::string piece(u32 token) const;

  std::shared_ptr<Exchange> exchange_;
  ReplyForm form_;
  std::vector<Choice> choices_;
  std::string id_;
  u64 created_s_;
};

}  // namespace tarn::daemon
