// A strip is 32 consecutive k of one row of a quantised matrix, unpacked into plain numbers. Only
// this file knows the bits of the file's blocks and of the tiled layout; dequantisation, tiling and
// the generic product use it. It is written for reading, not for speed.
//
//   value of element e = f32(codes[e] - zero) * (d * scale[e / 16]) - dmin * min
//
// with scale = 1 and min = 0 for the types that lack them. The ISA files use the offsets below too.
// GGUF's format defines those of the file, tensor_type.h those of the tile.
#pragma once

#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

inline constexpr u32 kStripElems = 32;

struct Strip {
  u8 codes[kStripElems];  // unsigned; q8_0: stored byte + 128
  i32 zero;               // the code that means 0: 128, 8, 16, 0, 0, 32
  f32 d, dmin;
  i32 scale[2];  // one per 16 elements
  i32 min;
};

// Offsets of the parts of a block in the file, in bytes.
struct FileBlock {
  u32 d, dmin, scales, low, high;
};
inline constexpr FileBlock kFileQ8_0 = {0, 0, 0, 2, 0};
inline constexpr FileBlock kFileQ4_0 = {0, 0, 0, 2, 0};
inline constexpr FileBlock kFileQ5_0 = {0, 0, 0, 6, 2};
inline constexpr FileBlock kFileQ4K = {0, 2, 4, 16, 0};
inline constexpr FileBlock kFileQ5K = {0, 2, 4, 48, 16};
inline constexpr FileBlock kFileQ6K = {208, 0, 192, 0, 128};

// Offsets of the parts of 16 rows' blocks in a tile: a head, then strip after strip.
struct TileBlock {
  u32 dmin, scales;  // d is at 0
  u32 strips;        // first byte after the head
  u32 strip_bytes;   // of 16 rows
  u32 high;          // within a strip's bytes
};
inline constexpr TileBlock kTileQ8_0 = {0, 0, 32, 512, 0};
inline constexpr TileBlock kTileQ4_0 = {0, 0, 32, 256, 0};
inline constexpr TileBlock kTileQ5_0 = {0, 0, 32, 320, 256};
inline constexpr TileBlock kTileQ4K = {32, 64, 256, 256, 0};
inline constexpr TileBlock kTileQ5K = {32, 64, 256, 320, 256};
inline constexpr TileBlock kTileQ6K = {0, 32, 288, 384, 256};

// `block` is the block's first byte in the file; strip_idx counts from the block's start.
Strip strip_from_file(TensorType type, const u8* block, u32 strip_idx);
// `block` is the first byte of the 16 rows' blocks in the tile.
Strip strip_from_tile(TensorType type, const u8* block, u32 row, u32 strip_idx);
// Writes the codes, not the scales, into row `row` (0..15), whose bits there must be zero.
void strip_codes_to_tile(TensorType type, const Strip& strip, u8* block, u32 row, u32 strip_idx);

}  // namespace tarn::kernels
