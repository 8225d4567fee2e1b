// Converts gpu_tile.h's layout to plain numbers, with dequantize_row()'s bits.
//
//   embed        out[n] = row tokens[n] of the table, f32; rows [n_rows, rows_max) keep their
//                values
//   dequantize   all rows of a matrix as f16 (rounded to nearest even), for a dense product
//
//   weights   [n_out, k] in the GPU's layout; a token must be below n_out
#pragma once

#include "kernels/quant/gpu_tile.h"

namespace tarn::kernels {

struct GpuEmbedArgs {
  TensorType type;
  const void* weights;
  u32 k;
  const u32* tokens;  // [rows_max], on the device
  f32* out;           // [rows_max, out_stride]
  u64 out_stride;     // elements
  const u32* n_rows;
  u32 rows_max;
};

struct GpuDequantizeArgs {
  TensorType type;
  const void* weights;
  u32 n_out;
  u32 k;
  u16* out;  // [n_out, k] f16, 16-byte aligned
};

}  // namespace tarn::kernels
