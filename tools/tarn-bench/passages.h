// Prompts of passages, and the time to their first token.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/engine.h"
#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

struct PassagesShape {
  u32 n_passages = 0, n_tokens = 0;
  u64 n_in_all() const { return u64{n_passages} * n_tokens; }
};
// Parses a text like 6x512. Throws std::invalid_argument.
PassagesShape parse_passages(const std::string& text);
// Parses a text like 0,0.15. Throws std::invalid_argument.
std::vector<f32> parse_shares(const std::string& text);

// Returns the bench's options that hold for a prompt of passages. Throws tools::Failure.
Config passages_config(const Options& options, u64 context_tokens);

// Passages, named by their numbers, and a question.
struct PassagesPrompt {
  std::vector<u32> ids{};
  std::vector<reuse::ChunkSpan> chunks{};
};
struct PassagesText {
  std::vector<u32> begin{};  // of every text: BOS, or nothing
  u32 n_vocab = 0;

  explicit PassagesText(const engine::Engine& engine);
  std::vector<u32> passage(u32 number, u32 n_tokens) const;
  PassagesPrompt prompt(std::span<const u32> passages, u32 n_tokens, u32 question,
                        u32 n_question) const;
};

struct FirstToken {
  f64 seconds = 0;
  f64 predicted_s = 0;  // of blending; 0: without a profile
  u64 disk_bytes = 0, disk_wait_ns = 0;
  kv::Reused reused{};
};
// `share`: of the chunks' tokens, how many are computed anew; none: a prompt like any other.
// Throws tools::Failure.
FirstToken time_first_token(engine::Engine& engine, const PassagesPrompt& prompt,
                            std::optional<f32> share, std::string_view tenant = "");

}  // namespace tarn::bench
