// kernels/topk/topk_gpu.h
//
// topk.h on a GPU, a row of values a CTA: the same places, ascending.
//
//   values   [n_rows, values_stride] f32; n[0] of each, on the device
//   out      [n_rows, out_stride] u32: min(n, k) of each
//
// How    the k-th key two bits at a time: a pass counts the keys that reach each of three bounds;
//        one more counts those above it, and a last one takes them and the first of the equal ones.
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
  u32 n_rows;
  u32 k;
};

}  // namespace tarn::kernels
