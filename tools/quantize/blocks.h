// Builds a file's block of a quantised tensor type from plain numbers: the inverse of
// kernels/quant/strip.h, for programs that make files.
//
//   value of element e = (codes[e] - code_of_zero) * (d * scale) - dmin * minimum
//
// with the scale and minimum of e's sub-block (of 32 elements in q4_k and q5_k, of 16 in q6_k), or
// 1 and 0 in the types that have none.
#pragma once

#include <array>
#include <span>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

inline constexpr u32 kBlockElemsMax = 256;

struct BlockParts {
  std::array<u8, kBlockElemsMax> codes{};  // unsigned; as many as the type's block has elements
  std::array<i32, 16> scales{};            // q4_k, q5_k: 8 of 0..63; q6_k: 16 of -128..127
  std::array<i32, 8> minima{};             // q4_k, q5_k: 0..63
  u16 d = 0;                               // f16 bits
  u16 dmin = 0;                            // f16 bits; q4_k, q5_k
};

// The code of zero; 0 for q4_k and q5_k, which have minima for it.
i32 code_of_zero(kernels::TensorType type);
i32 code_max(kernels::TensorType type);

// Writes f32, f16 or bf16, to nearest even.
void put_floats(kernels::TensorType type, std::span<const f32> values, u8* out);
// Writes the type's block_bytes. Not for the float types.
void put_block(kernels::TensorType type, const BlockParts& parts, u8* block);

}  // namespace tarn::tools
