// The element-wise ops of a layer on a GPU, with the formulas, bounds and bits of act.h:
//
//   swiglu    out[n, i] = (gate[n, i] / (1 + exp(-gate[n, i]))) * up[n, i]
//   add       x[n, i] = x[n, i] + y[n, i]
//   gather    out[n, i] = x[rows[n], i]; out does not overlap x
//
//   all rows  [rows_max, stride] f32, d elements each; rows [n_rows, rows_max) keep their values
//   quantized if wanted (d % 32 = 0): swiglu's out in the form of activations_gpu.h; out may then
//             be nullptr
#pragma once

#include "kernels/quant/activations_gpu.h"

namespace tarn::kernels {

struct GpuSwigluArgs {
  const f32* gate;
  const f32* up;
  u64 in_stride;  // elements, of gate and of up
  f32* out;
  u64 out_stride;
  GpuQuantized quantized{};
  const u32* n_rows;
  u32 rows_max;
  u32 d;
};

struct GpuAddArgs {
  f32* x;
  u64 x_stride;
  const f32* y;
  u64 y_stride;
  const u32* n_rows;
  u32 rows_max;
  u32 d;
};

struct GpuGatherArgs {
  const f32* x;
  u64 x_stride;
  const u32* rows;  // on the device
  f32* out;
  u64 out_stride;
  const u32* n_rows;  // of out
  u32 rows_max;
  u32 d;
};

}  // namespace tarn::kernels
