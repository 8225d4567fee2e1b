// kernels/quant/activations.h
//
// Activation rows as the quantised matrix products want them: per 32 elements one f32 scale
// d = max|x| / 127 (f32 division), i8 values q = round to nearest even of x / d, computed as
// x * (127 / max|x|) (0 where max|x| is 0), and the i32 sums of q over each 16.
//
//   x        [n_rows, x_stride] f32
//   q        [n_rows, k] i8
//   scales   [n_rows, k/32] f32
//   sums     [n_rows, k/16] i32
//
// k is a multiple of 32. A row's result depends on that row alone. Non-finite input gives a scale that
// is not finite, so it reaches the logits and is seen there.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

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
void quantize_activations_avx2(const QuantizeActivationsArgs& args);
void quantize_activations_avx512(const QuantizeActivationsArgs& args);

}  // namespace tarn::kernels
