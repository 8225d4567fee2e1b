#include "runtime/engine/sessions/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/random_at.h"

namespace tarn::engine {
namespace {

// [0, 1). A draw needs no state beyond its number.
f64 uniform_draw(u64 seed, u64 draw_idx) {
  return static_cast<f64>(random_at(seed, draw_idx) >> 11) * 0x1.0p-53;
}

void apply_biases(const SampleArgs& args) {
  const SamplerParams& params = *args.params;
  for (u32 i = 0; i < params.n_logit_biases; ++i) {
    args.logits[params.logit_biases[i].token] += params.logit_biases[i].bias;
  }
}

// Calls fn(token, count) once for each token that for_each_token gives to its function. The
// candidates, which nothing else needs yet, have the counts.
template <class ForEachToken, class Fn>
void for_each_count(const SampleArgs& args, const ForEachToken& for_each_token, const Fn& fn) {
  const std::span<kernels::Candidate> counts = args.scratch.candidates;
  for_each_token([&](u32 token) { counts[token].id = 0; });
  for_each_token([&](u32 token) { ++counts[token].id; });
  for_each_token([&](u32 token) {
    if (const u32 n = std::exchange(counts[token].id, 0); n > 0) fn(token, n);
  });
}

void apply_penalties(const SampleArgs& args) {
  const SamplerParams& params = *args.params;
  const std::span<const u32> history = args.history;
  if (params.repetition_penalty != 1.0f) {
    const u64 n = std::min<u64>(params.penalty_last_tokens, history.size());
    const auto in_window = [&](const auto& fn) {
      for (const u32 token : history.last(n)) fn(token);
    };
    for_each_count(args, in_window, [&](u32 token, u32) {
      f32& logit = args.logits[token];
      logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    });
  }
  if (params.frequency_penalty == 0.0f && params.presence_penalty == 0.0f) return;
  const auto generated = [&](const auto& fn) {
    args.generated.for_each(static_cast<u32>(history.size()), [&](u32 i) { fn(history[i]); });
  };
  for_each_count(args, generated, [&](u32 token, u32 count) {
    args.logits[token] -=
        static_cast<f32>(count) * params.frequency_penalty + params.presence_penalty;
  });
}

bool has_penalties(const SamplerParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

void report_top(const SampleArgs& args, f64 log_sum, Sampled& sampled) {
  sampled.n_top = std::min(args.params->n_top_logprobs, static_cast<u32>(args.logits.size()));
  if (sampled.n_top == 0) return;
  kernels::select_top(args.logits.data(), args.logits.size(), sampled.n_top,
                      args.scratch.candidates.data());
  for (u32 i = 0; i < sampled.n_top; ++i) {
    sampled.top[i] = {args.scratch.candidates[i].id,
                      static_cast<f32>(args.scratch.candidates[i].logit - log_sum)};
  }
}

// Counts the best-first candidates that survive top-p and min-p; weights[i] = exp((l_i - l_0)).
u64 cut_tail(const SamplerParams& params, std::span<const kernels::Candidate> best, f64 mass_all) {
  u64 n = best.size();
  const f64 first = best[0].logit;
  if (params.top_p < 1.0f) {
    f64 mass = 0.0;
    for (u64 i = 0; i < n; ++i) {
      mass += kernels::exp_f64(best[i].logit - first);
      if (mass >= params.top_p * mass_all) {
        n = i + 1;
        break;
      }
    }
  }
  if (params.min_p > 0.0f) {
    u64 kept = 1;
    while (kept < n && kernels::exp_f64(best[kept].logit - first) >= params.min_p) ++kept;
    n = kept;
  }
  return n;
}

u32 draw(const SampleArgs& args, const kernels::LogitsSummary& summary) {
  const SamplerParams& params = *args.params;
  const u64 n_vocab = args.logits.size();
  const u32 k = params.top_k == 0 ? static_cast<u32>(n_vocab)
                                  : static_cast<u32>(std::min<u64>(params.top_k, n_vocab));
  kernels::select_top(args.logits.data(), n_vocab, k, args.scratch.candidates.data());
  const std::span<const kernels::Candidate> best = args.scratch.candidates.first(k);
  f64 mass_all = 0.0;
  for (const kernels::Candidate& c : best) mass_all += kernels::exp_f64(c.logit - best[0].logit);
  const u64 n = cut_tail(params, best, mass_all);

  const f64 inverse = 1.0 / params.temperature;
  f64 mass = 0.0;
  for (u64 i = 0; i < n; ++i) {
    mass += kernels::exp_f64((static_cast<f64>(best[i].logit) - summary.max) * inverse);
  }
  f64 left = uniform_draw(params.seed, args.draw_idx) * mass;
  for (u64 i = 0; i < n; ++i) {
    left -= kernels::exp_f64((static_cast<f64>(best[i].logit) - summary.max) * inverse);
    if (left < 0.0) return best[i].id;
  }
  return best[0].id;  // rounding ate the last of the mass
}

Result<void> check_finite(const kernels::LogitsSummary& summary) {
  if (summary.n_not_finite == 0 && summary.max != -INFINITY) return {};
  return fail({.status = Status::not_finite,
               .hint = "the model produced logits that are not finite numbers: its weights or its "
                       "KV are damaged",
               .figures = {{{"logits", summary.n_not_finite}}}});
}

}  // namespace

Unexpected bad_field(const char* field, const char* hint, Figure a, Figure b) {
  return fail({.status = Status::invalid_request,
               .reason = Reason::bad_field,
               .key = field,
               .hint = hint,
               .figures = {{a, b}}});
}

Result<void> validate(const SamplerParams& p, u32 n_vocab) {
  const auto in_range = [](f32 value, f32 low, f32 high) { return value >= low && value <= high; };
  if (!in_range(p.temperature, 0.0f, 100.0f))
    return bad_field("temperature", "temperature must be 0 to 100");
  if (!in_range(p.top_p, 0.0f, 1.0f)) return bad_field("top_p", "top_p must be 0 to 1");
  if (!in_range(p.min_p, 0.0f, 1.0f)) return bad_field("min_p", "min_p must be 0 to 1");
  if (!in_range(p.repetition_penalty, 0.01f, 100.0f)) {
    return bad_field("repetition_penalty", "repetition_penalty must be 0.01 to 100");
  }
  if (!in_range(p.frequency_penalty, -100.0f, 100.0f)) {
    return bad_field("frequency_penalty", "frequency_penalty must be -100 to 100");
  }
  if (!in_range(p.presence_penalty, -100.0f, 100.0f)) {
    return bad_field("presence_penalty", "presence_penalty must be -100 to 100");
  }
  if (p.penalty_last_tokens > kPenaltyWindowMax) {
    return bad_field("penalty_last_tokens", "penalty_last_tokens must be at most 4096");
  }
  if (p.n_logit_biases > kLogitBiasesMax)
    return bad_field("logit_biases", "at most 256 logit biases are allowed");
  if (p.n_top_logprobs > kTopLogprobsMax)
    return bad_field("n_top_logprobs", "at most 20 top logprobs are allowed");
  if (p.n_top_logprobs > 0 && !p.wants_logprob) {
    return bad_field("n_top_logprobs",
                     "top logprobs and no logprobs are both asked for: leave one out");
  }
  for (u32 i = 0; i < p.n_logit_biases; ++i) {
    if (p.logit_biases[i].token >= n_vocab) {
      return bad_field("logit_biases",
                       "a logit bias names a token that the vocabulary does not have",
                       {"token", p.logit_biases[i].token}, {"n_vocab", n_vocab});
    }
    const f32 bias = p.logit_biases[i].bias;
    if (std::isnan(bias) || bias == INFINITY)
      return bad_field("logit_biases", "a logit bias must be below infinity");
  }
  return {};
}

bool takes_best(const SamplerParams& params) {
  return params.temperature == 0.0f && !params.wants_logprob && params.n_logit_biases == 0 &&
         !has_penalties(params);
}

Result<Sampled> sample_best(const kernels::LogitsSummary& summary) {
  TARN_CHECK(check_finite(summary));
  return Sampled{.token = summary.argmax};
}

Result<Sampled> sample(const SampleArgs& args) {
  TARN_ASSERT(args.scratch.candidates.size() >= args.logits.size());
  TARN_ASSERT(args.scratch.original.size() >= args.logits.size());
  const SamplerParams& params = *args.params;
  kernels::LogitsSummary summary =
      kernels::summarize_logits(args.logits.data(), args.logits.size());
  if (takes_best(params)) return sample_best(summary);
  TARN_CHECK(check_finite(summary));
  Sampled sampled;
  const f64 log_sum = params.wants_logprob
                          ? kernels::log_sum_exp(args.logits.data(), args.logits.size(),
                                                 summary.max, args.scratch.exp)
                          : 0.0;
  report_top(args, log_sum, sampled);

  // A token's logprob is the model's own.
  if (params.wants_logprob) std::ranges::copy(args.logits, args.scratch.original.begin());
  apply_biases(args);
  if (has_penalties(params)) apply_penalties(args);
  summary = kernels::summarize_logits(args.logits.data(), args.logits.size());
  if (summary.max == -INFINITY) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "logit_biases",
                 .hint = "the logit biases forbid every token of the vocabulary"});
  }
  sampled.token = params.temperature == 0.0f ? summary.argmax : draw(args, summary);
  if (!params.wants_logprob) return sampled;
  sampled.logprob = static_cast<f32>(args.scratch.original[sampled.token] - log_sum);
  return sampled;
}

}  // namespace tarn::engine
