// The distance of an engine's logits from the oracle's.
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn::test {

struct LogitsDistance {
  u64 n_positions = 0;
  f64 kl_mean = 0;  // mean over positions of KL(reference || other), nats
  f64 kl_max = 0;
  f64 rms_error = 0;    // of centred logits (each row less its mean), over all positions
  f64 relative_l2 = 0;  // |other - reference| / |reference|, centred
  u64 n_decided = 0;    // positions whose margin between first and second exceeds `margin_min`
  u64 n_agreed = 0;     // of those, where other's first is reference's
  u64 n_near_ties = 0;  // the other positions
};

// Both row-major [n, n_vocab]. A logit that is not finite gives kl_mean = infinity.
LogitsDistance logits_distance(std::span<const f64> reference, std::span<const f32> other,
                               u64 n_vocab, f64 margin_min);

// Mean entropy of the rows' softmax, nats.
f64 mean_entropy(std::span<const f64> logits, u64 n_vocab);

}  // namespace tarn::test
