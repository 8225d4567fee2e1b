// A strip is 32 consecutive k of one row of a quantised matrix, unpacked into plain numbers.
// Dequantisation, tiling and the generic product use it. It is written for reading, not for speed.
//
//   value of element e = f32(codes[e] - zero) * (d * scale[e / 16]) - dmin * min[e / 16]
//
// with scale = 1 and min = 0 for the types that lack them; a type that adds its minimum (q4_1) has
// min = 1 and its negative as dmin.
#pragma once

#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

struct Strip {
  u8 codes[kStripElems];  // the weight above the type's least one; q8_0: stored byte + 128
  i32 zero;               // the code that means 0
  f32 d, dmin;
  i32 scale[2];  // one per 16 elements
  i32 min[2];
};

// `block` is the block's first byte in the file; strip_idx counts from the block's start.
Strip strip_from_file(TensorType type, const u8* block, u32 strip_idx);
// `block` is the first byte of the 16 rows' blocks in the tile.
Strip strip_from_tile(TensorType type, const u8* block, u32 row, u32 strip_idx);
// Where a plane's bits of element e of a block's strip lie behind the plane's first byte.
struct BitOffset {
  u32 byte, shift;
};
BitOffset bit_in_file(const Plane& plane, u32 strip_idx, u32 e);

// Writes a block of the file, as it is, into row `row` (0..15) of a tile, whose bits there must be
// zero.
void block_to_tile(TensorType type, const u8* source, u8* block, u32 row);

}  // namespace tarn::kernels
