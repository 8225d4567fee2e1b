// The plain product of a prefill slice on a GPU, f16 by f16, used where there is no library for it:
//
//   out[n, r] (+)= sum over k of x[n, k] * w[r, k]  (+ bias[r])
//
//   x        [rows_max, k] f16, from narrow; w [n_out, k] f16, from dequantize (dequant_gpu.h);
//            both 16-byte aligned, k % 32 = 0
//   out      [rows_max, out_stride] f32; aliases nothing
//   n_rows   on the device; rows [n_rows, rows_max) of x are not read, those of out keep their
//            values
//   narrow   out[n, i] = x[n, i] as f16, to nearest even: makes x from f32 rows
//
// A row's result depends on that row and on the GPU: sums run over k in steps of 16, and the matrix
// unit decides order and rounding inside a step (kernels/common/cta.h).
// Bound   |error| <= 2 * (k + 16) * eps * sum|x*w|, eps = 2^-23, against the product of the f16
//         numbers: the unit may truncate instead of rounding.
// Cost    a CTA reads (64 + 64) * k f16 for 64 * 64 sums.
#pragma once

#include "kernels/matmul/matvec_gpu.h"

namespace tarn::kernels {

struct GpuNarrowArgs {
  const f32* x;
  u64 x_stride;  // elements
  u16* out;      // [rows_max, d]
  const u32* n_rows;
  u32 rows_max;
  u32 d;
};

struct GpuMatmulArgs {
  const u16* x;
  const u16* w;
  const f32* bias;  // [n_out] or nullptr
  f32* out;
  u64 out_stride;  // elements
  const u32* n_rows;
  u32 rows_max;
  u32 n_out;
  u32 k;
  Store store;
};

}  // namespace tarn::kernels
