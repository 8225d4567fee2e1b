// Shared by the files of matmul's ISA bodies. Not for callers: matmul.h is the contract.
#pragma once

#include "kernels/matmul/matmul.h"

namespace tarn::kernels {

// Activation rows that share one unpacking of the weights.
inline constexpr u32 kMatmulActs = 64;
// Tiles that share one packing of the activations.
inline constexpr u32 kMatmulTiles = 8;

// The products whose weights are f32, f16 or bf16.
void matmul_float_avx2(const MatmulArgs& args);
void matmul_float_avx512(const MatmulArgs& args);

}  // namespace tarn::kernels
