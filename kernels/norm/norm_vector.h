// The body of norm.h for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
#pragma once

#include "kernels/norm/norm.h"

namespace tarn::kernels {
namespace {

template <class F>
struct NormVector {
  using V = typename F::V;

  static void rms_norm(const RmsNormArgs& args) {
    for (u32 n = 0; n < args.n_rows; ++n) {
      const f32* x = args.x + n * args.x_stride;
      const f32 mean = sum_of_squares(x, args.d) / static_cast<f32>(args.d);
      const V r = F::set(1.0f / __builtin_sqrtf(mean + args.eps));
      f32* out = args.out + n * args.out_stride;
      u32 i = 0;
      for (; i + F::kLanes <= args.d; i += F::kLanes) {
        F::store(out + i, F::mul(F::mul(F::load(x + i), r), F::load(args.weight + i)));
      }
      const u32 rest = args.d - i;
      if (rest == 0) continue;
      const V weight = F::load_some(args.weight + i, rest);
      F::store_some(out + i, F::mul(F::mul(F::load_some(x + i, rest), r), weight), rest);
    }
  }

 private:
  static constexpr u32 kParts = 16 / F::kLanes;  // registers for 16 lanes

  static f32 sum_of_squares(const f32* x, u32 d) {
    V lanes[kParts];
    for (V& part : lanes) part = F::zero();
    u32 i = 0;
    for (; i + 16 <= d; i += 16) {
      for (u32 j = 0; j < kParts; ++j) {
        const V v = F::load(x + i + j * F::kLanes);
        lanes[j] = F::fma(v, v, lanes[j]);
      }
    }
    // Lanes without an element add 0 * 0, which changes no sum of squares.
    for (u32 j = 0; i + j * F::kLanes < d; ++j) {
      const u32 left = d - i - j * F::kLanes;
      const V v = F::load_some(x + i + j * F::kLanes, left < F::kLanes ? left : F::kLanes);
      lanes[j] = F::fma(v, v, lanes[j]);
    }
    return F::sum16(lanes);
  }
};

}  // namespace
}  // namespace tarn::kernels
