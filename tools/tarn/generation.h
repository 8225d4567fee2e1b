// tools/tarn/generation.h
//
// One prompt, one answer: what `tarn run` does once and its sample does three times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "runtime/api/tarn.h"

namespace tarn::tools {

struct GenerationResult {
  std::string text;         // generated only; valid UTF-8
  std::vector<u32> tokens;  // generated only
  u64 n_prompt_tokens = 0;
  int finish = 0;
  f64 prefill_s = 0;
  f64 decode_s = 0;
  std::optional<u64> n_allocations;  // from the feed to the last event

  f64 prefill_tokens_per_s() const;
  f64 decode_tokens_per_s() const;  // of the tokens after the first
};

class ApiSession {
 public:
  explicit ApiSession(tarn_engine* engine);
  ApiSession(const ApiSession&) = delete;
  ApiSession& operator=(const ApiSession&) = delete;
  ~ApiSession() { tarn_session_destroy(session_); }
  // A second session with the same tokens and KV.
  static ApiSession fork_of(const ApiSession& source);
  tarn_session* get() const { return session_; }

 private:
  explicit ApiSession(tarn_session* owned) : session_(owned) {}
  tarn_session* session_ = nullptr;
};

// Feeds `prompt` and generates. `stream`: text is printed as it comes, and a prefill that takes
// long shows its progress on a terminal. Throws Failure.
GenerationResult generate(const ApiSession& session, const std::vector<u32>& prompt,
                          const tarn_generate_options& options, bool stream);

}  // namespace tarn::tools
