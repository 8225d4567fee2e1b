// topk.h on a GPU, one CTA per row of values: the same places, ascending.
//
//   values   [n_rows, values_stride] f32; n[0] values each
//   out      [n_rows, out_stride] u32: min(n, k) places each
//   n, k     one number each, on the device
//
// How    kernels/common/rank_cta.h.
// Cost   reads the values 18 times, from the L2.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

struct GpuTopKArgs {
  const f32* values;
  u64 values_stride;  // elements
  u32* out;
  u64 out_stride;  // elements
  const u32* n;
  const u32* k;
  u32 n_rows;
};

}  // namespace tarn::kernels
