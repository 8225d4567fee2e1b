// The tensor types of GGUF that this build computes with, their block geometry in the file, and the
// one layout that weights have in memory.
//
// Tiled layout ("tile16"). A matrix [n_rows, k] of any type is cut into tiles of 16 rows. A tile
// has exactly 16 times the bytes of one row of the file, so a tensor grows only by the padding of
// its last tile (rows of zeros). Inside a tile the rows are interleaved, so that lane r of a vector
// is row r. So a product needs no horizontal sum, 1 and 512 activation rows have the same
// arithmetic, and a sum runs over k in the same order on every ISA. Byte by byte:
//
//   f32, f16, bf16      [k][16] elements
//   q8_0   per 32 k     d f16[16]; q i8 [8 groups][16 rows][4 k]                          544 B
//   q4_0   per 32 k     d f16[16]; q u8 [4][16 rows][4]: byte (i,r,c) holds element 4i+c in its
//                       low and element 16+4i+c in its high nibble                        288 B
//   q5_0   per 32 k     d f16[16]; q as in q4_0; high bits u8 [16 rows][4 c]: bit j of byte (r,c)
//                       is bit 4 of element 4j+c                                          352 B
//   q4_k   per 256 k    d f16[16]; dmin f16[16]; scales u8 [12][16] (the file's 12 bytes, row by
//                       lane); per 32 k: q u8 [4][16][4] as in q4_0                      2304 B
//   q5_k   per 256 k    as q4_k, then per 32 k after its q: high bits as in q5_0         2816 B
//   q6_k   per 256 k    d f16[16]; scales i8 [16 sub-blocks][16 rows]; per 32 k: low nibbles as
//                       q4_0, then high u8 [2][16 rows][4 c]: bits 2g..2g+1 of byte (v,r,c) are
//                       bits 4..5 of element 4(4v+g)+c                                   3360 B
//
// "Element e of a 32" always means the logical order along k, not the file's order of bits.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

// Values are GGUF's type ids.
enum class TensorType : u32 {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q5_0 = 6,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

struct TypeTraits {
  TensorType type;
  const char* name;  // lower case, as on the command line
  u32 block_elems;   // along k
  u32 block_bytes;   // in the file
};

inline constexpr TypeTraits kTypeTraits[] = {
    {TensorType::f32, "f32", 1, 4},       {TensorType::f16, "f16", 1, 2},
    {TensorType::bf16, "bf16", 1, 2},     {TensorType::q8_0, "q8_0", 32, 34},
    {TensorType::q4_0, "q4_0", 32, 18},   {TensorType::q5_0, "q5_0", 32, 22},
    {TensorType::q4_k, "q4_k", 256, 144}, {TensorType::q5_k, "q5_k", 256, 176},
    {TensorType::q6_k, "q6_k", 256, 210},
};

inline constexpr u32 kTileRows = 16;

// nullptr for an id that this build does not know.
const TypeTraits* type_traits(u32 gguf_type_id);
const TypeTraits& type_traits(TensorType type);

// Bytes of one row of `k` elements; k must be a multiple of block_elems (asserted).
u64 row_bytes(TensorType type, u64 k);
// Bytes of [n_rows, k] in the tiled layout.
u64 tiled_bytes(TensorType type, u64 n_rows, u64 k);

}  // namespace tarn::kernels
