//   out[n, i] = (x[n, i] * r) * weight[i],   r = 1 / sqrt(mean of x[n]^2 + eps)
//
//   x, out   [n_rows, stride] f32, d elements a row; out may be x
//   weight   [d] f32
//
// Sum of squares: 16 lanes, lane j = fma(x[i], x[i], lane j) for i mod 16 = j ascending; halves are
// added (lanes 0-7 to 8-15, then 0-3 to 4-7, then 2, then 1). mean = sum / d; f32 throughout, sqrt
// and division are IEEE. The same bits on every ISA; a row's result depends on that row alone.
// Bound   |error| <= (d/64 + 4) * eps * |out|, eps = 2^-23: d/16 + 7 roundings under the root,
//         which halves them, and four after it.
// Source  Zhang and Sennrich 2019 (arXiv:1910.07467), section 4.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

struct RmsNormArgs {
  const f32* x;
  u64 x_stride;  // elements
  const f32* weight;
  f32* out;
  u64 out_stride;
  u32 n_rows;
  u32 d;
  f32 eps;
};
using RmsNormFn = void (*)(const RmsNormArgs& args);
void rms_norm_generic(const RmsNormArgs& args);
void rms_norm_avx2(const RmsNormArgs& args);
void rms_norm_avx512(const RmsNormArgs& args);

}  // namespace tarn::kernels
