// A sampler's questions about a row of logits [n] f32. Portable; the same answers on every machine.
// Ties go to the lower id.
#pragma once

#include "kernels/common/exp_f32.h"
#include "kernels/common/math_f64.h"  // exp_f64, for the probabilities of a few candidates
#include "platform/base/types.h"

namespace tarn::kernels {

struct LogitsSummary {
  u32 argmax;  // of the finite ones; 0 if there is none
  f32 max;
  u64 n_not_finite;  // NaN and +inf; -inf is a legal logit (a forbidden token)
};
LogitsSummary summarize_logits(const f32* logits, u64 n);

// ln of the sum of exp(logits): an ISA's exponential, which have the same bits, of logit - max in
// f32, summed in f64. Within 2^-22 (exp) + 2^-24 * the softmax's mean of max - logit (its rounding)
// of the true one: 2^-20 for n < 2^20. `max` from the summary, finite; no logit is above it.
f64 log_sum_exp(const f32* logits, u64 n, f32 max, ExpFn exponential);

struct Candidate {
  f32 logit;
  u32 id;
};
// The k best of n, best first (logit descending, then id ascending), into out[min(k, n)].
// No NaN among them. No allocation: `out` itself is the heap. O(n log k), near O(n) for k << n.
void select_top(const f32* logits, u64 n, u32 k, Candidate* out);

}  // namespace tarn::kernels
