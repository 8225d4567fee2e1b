// The matrix product of a decode step on a GPU: 1 to 8 rows, up to three matrices that share them
// (q, k, v; gate, up) in one launch.
//
//   out_j[n, r] (+)= sum over k of x[n, k] * w_j[r, k]  (+ bias_j[r])
//
//   weights  gpu_tile.h's layout, n_out rows of k; each matrix may be of its own type
//   x        [rows_max, x_stride] f32, 16-byte aligned rows: for f16 weights; k % 8 == 0
//   acts     activations_gpu.h's form of it: for the others
//   out      [rows_max, out_stride] f32; aliases nothing
//   n_rows   on the device. Rows [n_rows, rows_max) of x and acts are read and must exist; those of
//            out keep their values.
//
// The arithmetic does not depend on the batch, the matrix's place in the launch or the GPU. Lane j
// of a warp takes the chunks c = j (mod 32) in ascending order; then reduce_cta.h's butterfly adds
// the lanes.
//
//   f16    a chunk is 8 k:   acc = fma(x, w, acc), ascending k
//   q8_0   a chunk is 16 k:  acc = fma(f32(i), d_w * d_x, acc), i the exact integer dot
//   q4_k   a chunk is 32 k:  t = fma(f32(i), d*sc, -(f32(s) * (dmin*m))), s the sum of q;
//                            acc = fma(t, d_x, acc)
//   q6_k   a chunk is 32 k:  i = sc0 * dot16(q - 32) + sc1 * dot16(q - 32);
//                            acc = fma(f32(4 i), (d * 0.25) * d_x, acc)
//   then   out = acc (+ bias); with Store::add out = out + that
//
// Bound  f16: |error| <= (k/32 + 8) * eps * sum|x*w|, eps = 2^-23. Quantised: against the exact
//        product of the dequantised operands, (k/512 + 12) * eps * sum over 32s of |term|, where
//        both parts of a q4_k term count.
// Cost   reads the weights once for all rows: bytes / bandwidth; matvec_tuning.h counts the rest.
#pragma once

#include "kernels/quant/activations_gpu.h"
#include "kernels/quant/gpu_tile.h"

namespace tarn::kernels {

inline constexpr u32 kGpuMatricesMax = 3;
inline constexpr u32 kGpuMatvecRowsMax = 8;

enum class Store : u8 { set, add };

struct GpuMatrix {
  TensorType type;
  Store store;
  u32 n_out;
  const void* weights;  // 16-byte aligned
  const f32* bias;      // [n_out] or nullptr
  f32* out;
  u64 out_stride;  // elements
};

struct GpuMatvecArgs {
  GpuMatrix matrices[kGpuMatricesMax];
  u32 n_matrices;
  u32 k;
  const f32* x;
  u64 x_stride;  // elements
  GpuQuantized acts;
  const u32* n_rows;
  u32 rows_max;  // the batch's bucket: 1, 2, 4 or 8
};

}  // namespace tarn::kernels
