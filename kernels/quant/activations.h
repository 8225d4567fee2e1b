// Quantises activation rows for the quantised matrix products. Per 32 elements: one f32 scale d =
// max|x| / 127 (f32 division), i8 values q = round to nearest even of x / d, computed as x * (127 /
// max|x|), and the i32 sums of q over each 16.
//
//   x        [n_rows, x_stride] f32
//   q        [n_rows, k] i8
//   scales   [n_rows, k/32] f32
//   sums     [n_rows, k/16] i32
//
// k is a multiple of 32. A row's result depends on that row alone. |q| <= 127. Where max|x| is
// below 2^-120 (127 / max|x| could overflow) or not finite, the 32 values are 0. An infinity or NaN
// gives a scale that is not finite; 0 times that scale is a NaN, which reaches the logits and is
// detected there.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

// Bits of 2^-120f and of infinity: max|x| in between is quantised.
inline constexpr u32 kSmallestQuantizableBits = 0x03800000u;
inline constexpr u32 kInfinityBits = 0x7F800000u;

struct QuantizeActivationsArgs {
  const f32* x;
  u64 x_stride;  // elements
  i8* q;
  f32* scales;
  i32* sums;
  u32 n_rows;
  u32 k;
};
using QuantizeActivationsFn = void (*)(const QuantizeActivationsArgs& args);
void quantize_activations_generic(const QuantizeActivationsArgs& args);
void quantize_activations_avx2(const QuantizeActivationsArgs& args);  // AVX-512 machines too

}  // namespace tarn::kernels
