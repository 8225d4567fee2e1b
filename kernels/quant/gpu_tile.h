// The layout of weights in GPU memory: tiles of 16 rows. A tile has exactly 16 times a row's bytes
// in the file, and the last one is padded with rows of zeros. So tiled_bytes() of tensor_type.h is
// the size here too. Inside a tile the parts of the blocks are planes, row after row. So a warp
// reads 512 bytes at once, and a lane's 16 bytes are the codes of 32 consecutive k.
//
//   f16     [16][k] f16
//   q8_0    codes [16][k] i8; then d [16][k/32] f16
//   q4_k    codes [16][k/32][16]: byte i holds element i in its low and 16+i in its high nibble;
//           then heads [16][k/256][4] u32: {d f16, dmin f16}, then 96 bits: strip s has its scale
//           at bit 12s and its minimum at bit 12s+6
//   q6_k    low [16][k/32][16] as q4_k's codes; then high [16][k/32][8]: bits 2g..2g+1 of byte
//           4v+c are the upper two bits of element 16v+4g+c, their upper one flipped (so that a
//           byte put together is 4 times the signed value); then scales [16][k/16] i8; then
//           d [16][k/256] f16
//
// Every bit of the file is kept. Offsets below are row 0's, in bytes; a plane's rows are a 16th of
// its bytes apart. All planes and tiles start at multiples of 16.
#pragma once

#include "kernels/quant/dequant.h"
#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

constexpr bool has_gpu_layout(TensorType type) {
  return type == TensorType::f16 || type == TensorType::q8_0 || type == TensorType::q4_k ||
         type == TensorType::q6_k;
}

constexpr u64 gpu_q8_0_d(u64 k) { return 16 * k; }
constexpr u64 gpu_q4_k_heads(u64 k) { return 8 * k; }
constexpr u64 gpu_q6_k_high(u64 k) { return 8 * k; }
constexpr u64 gpu_q6_k_scales(u64 k) { return 12 * k; }
constexpr u64 gpu_q6_k_d(u64 k) { return 13 * k; }

// Bytes of 16 rows of k elements; 0 for a type without a layout.
constexpr u64 gpu_tile_bytes(TensorType type, u64 k) {
  switch (type) {
    case TensorType::f16:
      return 32 * k;
    case TensorType::q8_0:
      return 17 * k;
    case TensorType::q4_k:
      return 9 * k;
    case TensorType::q6_k:
      return 13 * k + k / 8;
    default:
      return 0;
  }
}

// A TileFn for these types: puts n_rows (1..16) rows of the file into one tile of this layout, on
// the host. Cost: one read and one write of the bytes.
void gpu_repack_rows(const TileArgs& args);

}  // namespace tarn::kernels
