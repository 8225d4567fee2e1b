// One prompt, one answer: `tarn run` uses it once, its sample three times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "runtime/api/tarn.h"
#include "runtime/api/tarn_explain.h"
#include "tools/support/progress.h"

namespace tarn::tools {

struct GenerationResult {
  std::string text;         // only generated text; valid UTF-8
  std::vector<u32> tokens;  // generated only
  u64 n_prompt_tokens = 0;
  int finish = 0;
  f64 prefill_s = 0;
  f64 decode_s = 0;
  u64 n_select_steps = 0;
  f64 kv_read_ratio = 1;
  u64 n_reused_from_memory = 0, n_reused_from_disk = 0;  // tokens of the prompt
  u64 n_placed = 0, n_recomputed = 0;                    // of its chunks (tarn_chunks.h)
  f32 recompute = 1;                                     // what was asked for them
  tarn_explanation explanation = TARN_INIT(tarn_explanation);
  std::optional<u64> n_allocations;  // from the feed to the last event
  bool was_stopped = false;          // by GenerateHow::stop, before the end

  // NaN if nothing was timed.
  f64 prefill_tokens_per_s() const;
  f64 decode_tokens_per_s() const;  // of the tokens after the first
};

class ApiSession {
 public:
  explicit ApiSession(tarn_engine* engine);
  explicit ApiSession(tarn_session* owned) : session_(owned) {}
  ApiSession(const ApiSession&) = delete;
  ApiSession& operator=(const ApiSession&) = delete;
  ~ApiSession() { tarn_session_destroy(session_); }
  // A second session with the same tokens and KV.
  static ApiSession fork_of(const ApiSession& source);
  tarn_session* get() const { return session_; }

 private:
  tarn_session* session_ = nullptr;
};

constexpr u32 kTimeToldTokens = 8192;

// The progress of a prefill and its remaining time, as the engine estimates it. Where standard
// error is no terminal, a long prefill's first line comes after kTimeToldTokens.
class PrefillProgress {
 public:
  explicit PrefillProgress(u64 n_computed_at_start) : n_computed_at_start_(n_computed_at_start) {}
  void show(const tarn_session_info& info);
  void clear() { progress_.clear(); }

 private:
  Progress progress_;
  u64 n_computed_at_start_;
  bool is_told_ = false;
};

// Waits until the whole input is computed, with progress. Returns false if `stop` is given and
// returned true.
bool wait_computed(const ApiSession& session, bool (*stop)());

// The passages in front of a prompt: a begin, and chunks.
struct Passages {
  std::vector<u32> begin{};
  std::vector<std::vector<u32>> chunks{};
  std::string marked{};  // the chunks as a message's content has them (tarn_chat.h)
  f32 recompute = 1;
  u64 n_tokens() const;
};

struct GenerateHow {
  bool only_reads = false;   // generates nothing: ends when the input is computed
  bool stream = false;       // text is printed as it comes (shown_answer.h)
  bool ends_line = false;    // the last line of that, in a pipe too
  bool (*stop)() = nullptr;  // polled while no event is ready: true ends it
  const Passages* passages = nullptr;
};
// Feeds `prompt`, unless it is empty, and generates. Throws Failure.
GenerationResult generate(const ApiSession& session, const std::vector<u32>& prompt,
                          const tarn_generate_options& options, const GenerateHow& how);
// Ends an answer that `stop` left, without the rest of its events.
void cancel(const ApiSession& session);

}  // namespace tarn::tools
