// From a row of logits to one token. In this order: logit bias; repetition penalty over the last
// tokens, prompt included; frequency and presence penalty over all generated tokens, however far
// back; then greedy; or top-k, top-p, min-p, temperature, one draw.
//
// The result is a function of (logits, history, its marks, parameters, seed, number of draws so
// far): the draw is counter-based, so a fork or a replay continues the same stream.
// Cost: the penalties touch the window and each generated token three times, and nothing is sorted;
// a logprob beside them costs a copy of the row.
// Sources  top-p: Holtzman et al. 2020 (arXiv:1904.09751); min-p: Nguyen et al. 2024
//          (arXiv:2407.01082); repetition penalty: Keskar et al. 2019 (arXiv:1909.05858), section
//          4.1.
#pragma once

#include <array>
#include <span>

#include "kernels/sample/sample.h"
#include "platform/base/result.h"
#include "runtime/step/generated_marks.h"

namespace tarn::engine {

inline constexpr u32 kLogitBiasesMax = 256;
inline constexpr u32 kTopLogprobsMax = 20;
inline constexpr u32 kPenaltyWindowMax = 4096;

struct LogitBias {
  u32 token = 0;
  f32 bias = 0.0f;
};

struct SamplerParams {
  f32 temperature = 0.0f;  // 0: greedy
  u32 top_k = 0;           // 0: off
  f32 top_p = 1.0f;
  f32 min_p = 0.0f;
  f32 repetition_penalty = 1.0f;
  f32 frequency_penalty = 0.0f;
  f32 presence_penalty = 0.0f;
  u32 penalty_last_tokens = 64;  // of the repetition penalty
  u64 seed = 0;
  u32 n_logit_biases = 0;
  std::array<LogitBias, kLogitBiasesMax> logit_biases{};
  u32 n_top_logprobs = 0;
  bool wants_logprob = true;  // of the chosen token; without it a greedy step needs no logits
};

// Returns whether the highest logit alone decides and nothing else is asked: sample_best() is
// enough.
bool takes_best(const SamplerParams& params);

// Returns invalid_request about a field of a call, by its name in tarn.h.
Unexpected bad_field(const char* field, const char* hint, Figure a = {}, Figure b = {});

// Ranges of every field; invalid_request names the field at fault.
Result<void> validate(const SamplerParams& params, u32 n_vocab);

struct TokenLogprob {
  u32 token = 0;
  f32 logprob = 0.0f;
};

struct Sampled {
  u32 token = 0;
  f32 logprob = 0.0f;  // of the model's own distribution, before bias, penalties and temperature
  u32 n_top = 0;
  std::array<TokenLogprob, kTopLogprobsMax> top{};
};

struct SampleScratch {
  std::span<kernels::Candidate> candidates{};  // [n_vocab]
  std::span<f32> original{};                   // [n_vocab]: logits before biases and penalties
  kernels::ExpFn exp = nullptr;                // of the ISA in use
};

struct SampleArgs {
  std::span<f32> logits{};           // [n_vocab]; biases and penalties are applied in place
  std::span<const u32> history{};    // tokens of the sequence so far, oldest first
  step::GeneratedMarks generated{};  // of the history; without words none is marked
  const SamplerParams* params = nullptr;
  u64 draw_idx = 0;  // tokens drawn before in this generation
  SampleScratch scratch{};
};

// not_finite if a logit is NaN or +inf, or if none is left to choose from.
Result<Sampled> sample(const SampleArgs& args);
// Samples the same token, for parameters that take the best, from a row's summary; without a
// logprob.
Result<Sampled> sample_best(const kernels::LogitsSummary& summary);

}  // namespace tarn::engine
