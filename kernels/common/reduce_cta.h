// Sums and maxima over a warp and over a CTA, for device code, each with one fixed tree: a
// butterfly over the lanes (16, 8, 4, 2, 1), then the warps in ascending order. Every lane (every
// thread) gets the result.
#pragma once

#include "kernels/common/cta.h"

namespace tarn::kernels::TARN_GPU {

TARN_DEVICE f32 sum_warp(Cta& cta, f32 value) {
  for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) value = value + cta.shuffle_xor(value, mask);
  return value;
}

template <class T>
TARN_DEVICE T max_warp(Cta& cta, T value) {
  for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
    const T other = cta.shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// `partial` has a word for each warp, and is free again after the CTA's next barrier.
TARN_DEVICE f32 sum_cta(Cta& cta, f32 value, const Shared<f32>& partial) {
  value = sum_warp(cta, value);
  if (cta.lane() == 0) partial[cta.warp()] = value;
  cta.barrier();  // every thread adds up what every warp wrote
  f32 sum = partial[0];
  TARN_UNROLL(8) for (u32 w = 1; w < partial.count(); ++w) sum = sum + partial[w];
  return sum;
}

}  // namespace tarn::kernels::TARN_GPU
