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
  const f32 shifted = clamped * kLog2E + kRound;
  const f32 n = shifted - kRound;
  const f32 r = (clamped - n * kLn2Hi) - n * kLn2Lo;
  f32 p = kC[3] + r * kC[4];
  p = kC[2] + r * p;
  p = kC[1] + r * p;
  p = kC[0] + r * p;
  p = 1.0f + (r + (r * r) * p);
  const i32 exponent = static_cast<i32>(bits_of(shifted) - bits_of(kRound));
  const i32 first = exponent >> 1;
  const f32 scale_first = float_of((static_cast<u32>(first) + 127u) << 23);
  const f32 scale_second = float_of((static_cast<u32>(exponent - first) + 127u) << 23);
  return (p * scale_first) * scale_second;
}

}  // namespace tarn::kernels::TARN_GPU
