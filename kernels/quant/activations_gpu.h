// kernels/quant/activations.h on a GPU: the same scales and values, bit for bit, laid out for the
// quantised products there.
//
//   x        [rows_max, x_stride] f32
//   q        [rows_max, k] i8
//   side     [rows_max, k/32] {d f32, sums: two i16, of q over elements 0..15 and 16..31}
//
// k is a multiple of 32. Rows [n_rows, rows_max) keep their values. A row's result depends on that
// row alone. Kernels whose output only a product reads (rms_norm, swiglu) write this form
// themselves.
#pragma once

#include "kernels/common/cta_types.h"

namespace tarn::kernels {

struct GpuQuantized {
  i8* q = nullptr;  // nullptr: none
  U32x2* side = nullptr;
};

struct GpuQuantizeArgs {
  const f32* x;
  u64 x_stride;  // elements
  GpuQuantized out;
  const u32* n_rows;
  u32 rows_max;
  u32 k;
};

}  // namespace tarn::kernels
