// Builds a file's block of a quantised tensor type from plain numbers: the inverse of
// kernels/quant/strip.h, from the same description of the type (kernels/quant/types), for programs
// that make files.
//
//   value of element e = level(codes[e]) * (d * scale) - dmin * minimum
//
// with the scale and minimum of e's sub-block. A type with one scale a block has scale 1, a type
// without minima minimum 0. q4_1 and q5_1 add the offset dmin: their minimum is -1.
#pragma once

#include <array>
#include <span>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

inline constexpr u32 kBlockElemsMax = 256;
inline constexpr f32 kF16Max = 65504;  // the largest scale that a block can hold

struct BlockParts {
  std::array<u8, kBlockElemsMax> codes{};  // unsigned; as many as the type's block has elements
  std::array<i32, 16> scales{};            // as many as the type has sub-blocks; not if d is alone
  std::array<i32, 16> minima{};            // the same
  u16 d = 0;                               // f16 bits, or the exponent's byte
  u16 dmin = 0;                            // f16 bits, in types with minima or an offset
};

// The numbers that a type's block can hold.
struct BlockForm {
  struct Range {
    i32 least, most;
  };
  kernels::TensorType type;
  u32 n_subs;    // sub-blocks with scales of their own; 1: d is alone
  Range scales;  // {1, 1} if d is alone
  Range minima;  // {0, 0}: none; {-1, -1}: dmin is an offset
  i32 code_most;
  i32 code_of_zero;            // 0 for types with minima
  std::span<const i8> levels;  // by code; empty: code - code_of_zero
  bool has_exponent;           // d is 2^(byte - 128)
  void (*put)(const BlockParts& parts, u8* zeroed_block);

  bool has_minima() const { return minima.most > 0; }
  bool has_offset() const { return minima.least < 0; }
};

// Not for the float types.
const BlockForm& block_form(kernels::TensorType type);

// Writes f32, f16 or bf16, to nearest even.
void put_floats(kernels::TensorType type, std::span<const f32> values, u8* out);
// Writes the type's block_bytes. Not for the float types.
void put_block(kernels::TensorType type, const BlockParts& parts, u8* block);

}  // namespace tarn::tools
