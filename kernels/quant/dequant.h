// Converts the file's blocks to f32, and into the tiled layout of tensor_type.h. Dequantisation
// equals ggml's reference bit for bit (tests/golden/quant): one f32 expression per element, in
// ggml's order.
//
//   source   one row of the file, [k] elements in blocks, any alignment
//   out      [k] f32; aliases nothing
#pragma once

#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

void dequantize_row(TensorType type, const void* source, u64 k, f32* out);

// Dequantises row `row` of a tiled matrix, for embedding look-ups. The same bits as dequantize_row.
void dequantize_tiled_row(TensorType type, const void* tiled, u64 row, u64 k, f32* out);

// Puts n_rows (1..16) consecutive rows of the file into one tile; missing rows become zeros.
// `tile` is 64-byte aligned, tiled_bytes(type, 16, k) long and does not alias `rows`.
// Cost: one read and one write of the bytes; it must keep up with an NVMe disk (several GB/s a
// core).
struct TileArgs {
  TensorType type;
  const void* rows;
  u32 n_rows;
  u64 k;
  void* tile;
};
using TileFn = void (*)(const TileArgs& args);
void tile_rows_generic(const TileArgs& args);
void tile_rows_avx2(const TileArgs& args);  // AVX-512 machines use it too: it is bound by memory

}  // namespace tarn::kernels
