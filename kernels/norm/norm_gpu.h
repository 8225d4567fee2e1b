// kernels/norm/norm.h's formula on a GPU, for rows, and for the heads of rows:
//
//   out[n, h, i] = (x[n, h, i] * r) * weight[i],   r = 1 / sqrt(mean of x[n, h]^2 + eps)
//
//   x, out   [rows_max, stride] f32 on the device, head h at h * d; out may be x
//   weight   [d] f32
//   quantized  if wanted (n_heads = 1, d % 32 = 0): out in the form of activations_gpu.h, for the
//            next product; out may then be nullptr
//   n_rows   on the device: rows [n_rows, rows_max) keep their values
//
// Sum of squares, one head to a row (n_heads = 1): thread j of 1,024 adds x[i]*x[i] for i = j (mod
// 1,024) in ascending i, then reduce_cta.h's tree. More heads: lane j of 32, then the butterfly. No
// FMA.
// A row's result depends on that row alone.
// Bound   |error| <= (d/64 + 8) * eps * |out|, eps = 2^-23: d/32 + 9 roundings under the root,
//         which halves them, and four after it.
// Cost    reads a row once, where d is at most 4,096.
#pragma once

#include "kernels/quant/activations_gpu.h"

namespace tarn::kernels {

struct GpuRmsNormArgs {
  const f32* x;
  u64 x_stride;  // elements
  const f32* weight;
  f32* out;
  u64 out_stride;
  GpuQuantized quantized{};
  const u32* n_rows;
  u32 rows_max;
  u32 n_heads;
  u32 d;
  f32 eps;
};

}  // namespace tarn::kernels
