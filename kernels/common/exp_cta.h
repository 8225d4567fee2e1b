// exp_f32.h's exponential for device code: the CPU's operations in the CPU's order, so its bits.
#pragma once

#include "kernels/common/cta.h"
#include "kernels/common/exp_f32.h"

namespace tarn::kernels::TARN_GPU {

TARN_DEVICE f32 exp_f32(f32 x) {
  constexpr f32 kLow = ExpF32::kLow, kHigh = ExpF32::kHigh, kRound = ExpF32::kRound;
  constexpr f32 kLog2E = ExpF32::kLog2E, kLn2Hi = ExpF32::kLn2Hi, kLn2Lo = ExpF32::kLn2Lo;
  constexpr f32 kC[] = {ExpF32::kC2, ExpF32::kC3, ExpF32::kC4, ExpF32::kC5, ExpF32::kC6};
  const f32 above = x < kLow ? kLow : x;  // both forms keep a NaN
  const f32 clamped = above > kHigh ? kHigh : above;
  const f32 shifted = fma(clamped, kLog2E, kRound);
  const f32 n = shifted - kRound;
  const f32 r = fma(n, -kLn2Lo, fma(n, -kLn2Hi, clamped));
  f32 p = fma(r, kC[4], kC[3]);
  p = fma(r, p, kC[2]);
  p = fma(r, p, kC[1]);
  p = fma(r, p, kC[0]);
  p = fma(r, p, 1.0f);
  p = fma(r, p, 1.0f);
  return p * float_of((bits_of(shifted) + 127u) << 23);
}

}  // namespace tarn::kernels::TARN_GPU
