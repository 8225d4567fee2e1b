// The body of rope.h for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
#pragma once

#include "kernels/rope/rope.h"

namespace tarn::kernels {
namespace {

template <class F>
struct RopeVector {
  using V = typename F::V;

  static void rope(const RopeArgs& args) {
    const u32 n_pairs = args.n_rot / 2;
    for (u32 n = 0; n < args.n_rows; ++n) {
      const f32* cos = args.cos + u64{n} * n_pairs;
      const f32* sin = args.sin + u64{n} * n_pairs;
      for (u32 h = 0; h < args.n_heads; ++h) {
        f32* head = args.x + n * args.x_stride + u64{h} * args.head_dim;
        if (args.pairs == RopePairs::adjacent) {
          turn_adjacent(head, cos, sin, n_pairs);
        } else {
          turn_halves(head, cos, sin, n_pairs);
        }
      }
    }
  }

 private:
  static void turn_halves(f32* head, const f32* cos, const f32* sin, u32 n_pairs) {
    for (u32 i = 0; i < n_pairs; i += F::kLanes) {
      const u32 n = n_pairs - i < F::kLanes ? n_pairs - i : F::kLanes;
      const V a = F::load_some(head + i, n), b = F::load_some(head + n_pairs + i, n);
      const V c = F::load_some(cos + i, n), s = F::load_some(sin + i, n);
      F::store_some(head + i, F::sub(F::mul(a, c), F::mul(b, s)), n);
      F::store_some(head + n_pairs + i, F::add(F::mul(a, s), F::mul(b, c)), n);
    }
  }

  // A register holds (a, b) pairs. (a, b) * (cos, cos) + (b, a) * (-sin, sin) is a*cos - b*sin and
  // b*cos + a*sin: the same sums of the same products.
  static void turn_adjacent(f32* head, const f32* cos, const f32* sin, u32 n_pairs) {
    constexpr u32 kPairs = F::kLanes / 2;
    u32 i = 0;
    for (; i + kPairs <= n_pairs; i += kPairs) {
      const V ab = F::load(head + 2 * i);
      const V c = F::load_doubled(cos + i);
      const V s = F::negate_even(F::load_doubled(sin + i));
      F::store(head + 2 * i, F::add(F::mul(ab, c), F::mul(F::swap_pairs(ab), s)));
    }
    for (; i < n_pairs; ++i) {
      const f32 a = head[2 * i], b = head[2 * i + 1];
      head[2 * i] = a * cos[i] - b * sin[i];
      head[2 * i + 1] = a * sin[i] + b * cos[i];
    }
  }
};

}  // namespace
}  // namespace tarn::kernels
