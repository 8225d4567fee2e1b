// Shared by the two halves of tarn verify: the options, the loss against exact answers, and the
// record.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/support/engine_options.h"
#include "tools/support/json.h"

namespace tarn::tools {

struct VerifyCommand {
  EngineOptions engine;
  std::string text_file;
  u32 n_steps = 128;
  u32 n_needles = 8;
  f64 kl_max = 0.05;
  std::optional<f64> top1_min;
  std::string record_file;
  bool json = false;
  // Options of selection.
  std::vector<std::string> presets{"pq", "pqcache-infinitebench"};
  std::vector<u32> budgets{512, 1024, 2048};
  // Options of chunks.
  bool reuse = false;
  std::vector<u32> percents{0, 5, 10, 15, 20, 30};
  std::string choice = "deviation";
  u32 n_prompts = 4, n_passages = 6, passage_tokens = 256, minutes = 30;
  u64 seed = 1;

  f64 least_top1() const { return top1_min.value_or(reuse ? 0.9 : 0.95); }
};

// The loss of rows of logits against those of the exact answer.
class Loss {
 public:
  void add(std::span<const f32> base, std::span<const f32> ours);
  bool is_empty() const { return kls_.empty(); }
  u64 n() const { return kls_.size(); }
  f64 kl_mean() const;
  f64 kl_p99() const;
  f64 top1() const;  // the share of equal best tokens
  bool is_within(const VerifyCommand& command) const {
    return !is_empty() && kl_mean() <= command.kl_max && top1() >= command.least_top1();
  }

 private:
  std::vector<f64> kls_;
  u32 n_agree_ = 0;
};

// The score of a trial: what its answers have lost. Those of the first trial are exact.
struct Score {
  Loss loss{};
  u32 n_right = 0, n_facts = 0;

  // Whether the facts are a test: those that exact answers do not have either are none.
  bool facts_tell(const VerifyCommand& command) const {
    return command.n_needles == 0 || n_right > 0;
  }
  bool passes(const VerifyCommand& command, const Score& exact, u32 n_lost_max = 0) const {
    return loss.is_within(command) && n_right + n_lost_max >= exact.n_right &&
           exact.facts_tell(command);
  }
  // Returns why the score does not pass.
  std::string why_not(const VerifyCommand& command, const Score& exact) const;
  // KL and top-1, 27 wide; dashes without any.
  std::string columns() const;
  void write_loss(Json& json) const;
  std::string text() const;  // a sentence
};
// Throws that the facts are no test.
[[noreturn]] void throw_facts_tell_nothing(const VerifyCommand& command);

bool are_finite(std::span<const f32> logits);
[[noreturn]] void throw_not_finite(const std::string& who);

// Returns the end of a refusal where a record was asked for.
std::string no_record_of(const VerifyCommand& command);
// Writes these keys, each whole or a section with its dot, as a configuration; `about` stands in
// front of them, as comments. select.index_delay_tokens is left out: it depends on the box.
void write_record(const VerifyCommand& command, const std::vector<std::string>& about,
                  const Config& config, const std::vector<std::string>& keys);

// Blends chunks of the text in other orders, and finds the smallest share of tokens that is enough.
void verify_reuse(VerifyCommand& command);

}  // namespace tarn::tools
