// pq_pairs.h's weights for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
#pragma once

#include "kernels/common/exp_vector.h"
#include "kernels/pq/pq_pairs_body.h"

namespace tarn::kernels {
namespace {

template <class F>
struct PqPairsVector {
  using V = typename F::V;
  static constexpr u32 kParts = 16 / F::kLanes;
  static constexpr f32 kNone = -__builtin_inff();

  static void weigh_pairs(const PqPairsArgs& args, f32* scores, f32* weights) {
    const u32 n = args.side * args.side;
    for (u32 h = 0; h < args.n_heads; ++h) {
      const f32 max = score(args, h, args.n_heads == 1 ? weights : scores);
      if (args.n_heads == 1) return;
      const V factor = F::set(1.0f / exp_and_sum(args.counts, n, max, scores));
      for (u32 i = 0; i < n; i += F::kLanes) {
        const V weight = F::mul(F::load(scores + i), factor);
        F::store(weights + i, h == 0 ? weight : F::add(F::load(weights + i), weight));
      }
    }
  }

 private:
  // Computes one head's scores; returns the largest.
  static f32 score(const PqPairsArgs& args, u32 h, f32* scores) {
    const f32* lut = args.lut + u64{h} * 2 * args.side;
    const V scale = F::set(args.scale);
    V largest = F::set(kNone);
    for (u32 c0 = 0; c0 < args.side; ++c0) {
      const V first = F::set(lut[c0]);
      for (u32 c1 = 0; c1 < args.side; c1 += F::kLanes) {
        const u32 i = c0 * args.side + c1;
        f32 some[F::kLanes];
        F::store(some, F::mul(F::add(first, F::load(lut + args.side + c1)), scale));
        for (u32 j = 0; j < F::kLanes; ++j) some[j] = args.counts[i + j] != 0 ? some[j] : kNone;
        const V kept = F::load(some);
        F::store(scores + i, kept);
        largest = F::max(kept, largest);  // ignores a NaN
      }
    }
    return F::max_lane(largest);
  }

  static f32 exp_and_sum(const u32* counts, u32 n, f32 max, f32* scores) {
    V lanes[kParts];
    for (V& part : lanes) part = F::zero();
    for (u32 i = 0; i < n; i += 16) {
      for (u32 j = 0; j < kParts; ++j) {
        const u32 at = i + j * F::kLanes;
        const V weight = exp_vector<F>(F::sub(F::load(scores + at), F::set(max)));
        F::store(scores + at, weight);
        f32 tokens[F::kLanes];
        for (u32 x = 0; x < F::kLanes; ++x) {
          tokens[x] = static_cast<f32>(static_cast<i32>(counts[at + x]));
        }
        lanes[j] = F::add(lanes[j], F::mul(F::load(tokens), weight));
      }
    }
    return F::sum16(lanes);
  }
};

}  // namespace
}  // namespace tarn::kernels
