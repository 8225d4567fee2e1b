// Scalar pieces that the generic bodies share. They are inline functions, so no ISA file may
// include this header: the linker keeps one copy of an inline function, and that must not be an AVX
// one.
#pragma once

#include <bit>

#include "kernels/common/exp_f32.h"
#include "platform/base/types.h"

namespace tarn::kernels {

// a * b + c, rounded once. Without an instruction for it, f64 does: the product is exact there. The
// sum is rounded to odd, and from there to f32 as the exact one would be (Boldo and Melquiond 2008,
// IEEE Transactions on Computers 57(4), theorem 3). libm's would be a call for each.
inline f32 fma_f32(f32 a, f32 b, f32 c) {
#ifdef __FP_FAST_FMAF
  return __builtin_fmaf(a, b, c);
#else
  const f64 product = f64{a} * f64{b}, more = c;
  const f64 sum = product + more;
  const f64 taken = sum - product;
  const f64 lost = (product - (sum - taken)) + (more - taken);  // exact (Knuth), or NaN
  // Without a branch, so that loops over it are vectorised.
  const u64 bits = std::bit_cast<u64>(sum);
  const u64 signs_differ = (bits ^ std::bit_cast<u64>(lost)) >> 63;
  const u64 step = 1 - 2 * signs_differ;  // 1 or, modulo 2^64, -1
  const f64 odd = std::bit_cast<f64>(bits + (step & ((bits & 1) - 1)));
  return static_cast<f32>(lost * 0 == 0 && lost != 0 ? odd : sum);
#endif
}

// Rounds to the nearest integer, ties to even, for |value| <= 2^22.
inline f32 round_even(f32 value) { return (value + ExpF32::kRound) - ExpF32::kRound; }

inline f32 exp_f32(f32 x) {
  const f32 above = x < ExpF32::kLow ? ExpF32::kLow : x;  // both keep a NaN
  const f32 clamped = above > ExpF32::kHigh ? ExpF32::kHigh : above;
  const f32 shifted = fma_f32(clamped, ExpF32::kLog2E, ExpF32::kRound);
  const f32 n = shifted - ExpF32::kRound;
  const f32 r = fma_f32(n, -ExpF32::kLn2Lo, fma_f32(n, -ExpF32::kLn2Hi, clamped));
  f32 p = fma_f32(r, ExpF32::kC6, ExpF32::kC5);
  p = fma_f32(r, p, ExpF32::kC4);
  p = fma_f32(r, p, ExpF32::kC3);
  p = fma_f32(r, p, ExpF32::kC2);
  p = fma_f32(r, p, 1.0f);
  p = fma_f32(r, p, 1.0f);
  // From bits, because converting a NaN to an integer is undefined. n + 127 of a NaN does not
  // matter.
  return p * std::bit_cast<f32>((std::bit_cast<u32>(shifted) + 127u) << 23);
}

// The fixed tree over 16 lanes adds halves: 0-7 to 8-15, then 0-3 to 4-7, then 2, then 1.
inline f32 sum16(const f32* lanes) {
  f32 sums[16];
  for (u32 j = 0; j < 16; ++j) sums[j] = lanes[j];
  for (u32 half = 8; half > 0; half /= 2) {
    for (u32 j = 0; j < half; ++j) sums[j] = sums[j] + sums[j + half];
  }
  return sums[0];
}

}  // namespace tarn::kernels
