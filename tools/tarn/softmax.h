// Figures of a row of logits for evaluation, in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "platform/base/types.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {

struct Softmax {
  f64 max = 0, log_sum = 0;  // log p = logit - log_sum
  u64 argmax = 0;
};

inline Softmax softmax_of(std::span<const f32> logits) {
  Softmax out;
  out.argmax = static_cast<u64>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  out.max = logits[out.argmax];
  f64 sum = 0;
  for (const f32 logit : logits) sum += std::exp(logit - out.max);
  out.log_sum = out.max + std::log(sum);
  return out;
}

// KL(base || other) in nats, for two rows of logits and their softmax.
inline f64 kl_divergence(std::span<const f32> base, const Softmax& base_softmax,
                         std::span<const f32> other, const Softmax& other_softmax) {
  f64 kl = 0;
  for (u64 i = 0; i < base.size(); ++i) {
    const f64 log_p = base[i] - base_softmax.log_sum;
    kl += std::exp(log_p) * (log_p - (other[i] - other_softmax.log_sum));
  }
  return kl;
}

// Throws Failure if a value computed from the logits at `position` is not a number.
inline void check_finite(f64 value, u64 position) {
  if (std::isfinite(value)) return;
  throw Failure{kExitRefused, "the logits of position " + std::to_string(position) +
                                  " are not finite numbers: the weights are damaged, get the file "
                                  "again"};
}

}  // namespace tarn::tools
