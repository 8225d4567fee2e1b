// kernels/matmul/matmat_gpu.h
//
// matvec_gpu.h's product for the many rows of a prompt. Same args, same arithmetic, so the same
// bits: how a prompt is cut, and which of the two kernels computes a part of it, changes nothing.
//
//   takes    q8_0, q4_k and q6_k, and k % 64 == 0; may be mixed in one launch. (f16's sums are of
//            f32, which the matrix units do not have.)
//   rows_max any. Rows [n_rows, rows_max) of acts are not read; those of out are left alone.
//
// The integer dots of matvec's chunks are the matrix units' (exact); the lanes of its warp, whose
// sums the butterfly adds, are *classes* of chunks here, and added in its order.
//
// Cost   a CTA makes 32 rows by 32 outputs. CTAs that share weights are neighbours, so memory sends
//        each weight once a launch and the L2 once for 32 rows. matmat_cuda.cu counts the rest.
#pragma once

#include "kernels/matmul/matvec_gpu.h"

namespace tarn::kernels {

constexpr bool gpu_matmat_takes(TensorType type, u64 k) {
  return has_gpu_layout(type) && type != TensorType::f16 && k % 64 == 0;
}

}  // namespace tarn::kernels
