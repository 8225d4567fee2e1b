// matvec_gpu.h's product for the many rows of a prompt. Args and arithmetic are the same, so the
// bits are too: they depend neither on how a prompt is cut nor on which of the two kernels computes
// a part.
//
//   takes    q8_0, q4_k and q6_k, with k % 64 == 0; a launch may mix them. (f16 needs f32 sums in
//            our order, which the matrix units do not have.)
//   rows_max any. Rows [n_rows, rows_max) of acts are not read; those of out are left alone.
//
// The matrix units compute the integer dots of matvec's chunks (exactly). The lanes of matvec's
// warp are *classes* of chunks here, and their sums are added in the butterfly's order.
//
// Cost   a CTA makes 32 rows by 32 outputs. CTAs that share weights are neighbours, so a launch
//        reads each weight from memory once, and from the L2 once for 32 rows. matmat_cuda.cu
//        counts the rest.
#pragma once

#include "kernels/matmul/matvec_gpu.h"

namespace tarn::kernels {

constexpr bool gpu_matmat_takes(TensorType type, u64 k) {
  return has_gpu_layout(type) && type != TensorType::f16 && k % 64 == 0;
}

}  // namespace tarn::kernels
