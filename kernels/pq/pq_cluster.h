// The steps of K-Means over one sub-space of one KV head's keys: assign rows to centroids, add rows
// up by centroid, move the centroids. A new key gets its code by the assignment alone.
//
//   x           [n_rows, x_stride] f32  the sub-space's dims of each key, after RoPE
//   centroids   [dims, n_padded] f32    transposed: lanes are centroids; n_padded =
//                                       pq_padded(n_centroids), zeros from n_centroids on
//   half_norms  [n_padded] f32          |c|^2 / 2; +inf from n_centroids on, so padding never wins
//   codes       [n_rows] u8
//   sums        [n_centroids, dims] i64 in units of 2^-24
//   counts      [n_centroids] u32
//
//   load        x[r][i] = the dims of a stored key as f32: f16 exactly; q8_0 f32(d) * f32(q),
//               exactly
//   assign      codes[r] = the c with the largest (sum over i ascending of x[r][i]*centroid[i][c])
//               - half_norm[c], the lowest c of equals: the nearest centroid by L2. f32, sequential
//               fma from 0. A value of NaN or -inf never wins; if all values are, the code is
//               0.
//   accumulate  sums[codes[r]][i] += round_to_even(clamp(x[r][i], -2^16, 2^16) * 2^24),
//               counts[codes[r]] += 1. A NaN counts as -2^16.
//   update      centroid = f32(f64(sum) / count * 2^-24); a centroid without rows does not move.
//
// Every f16, and every product of an f16 scale with an integer, is a multiple of 2^-24. So adding
// keys from a KV page rounds nothing, and integers may be added in any order. The sums have the
// same bits for any number of threads, slices or lanes, up to 2^22 rows a centroid. The same bits
// on every ISA.
//
// Bound   the code's value is within 2*(dims + 2)*eps*(sum|x*c| + |c|^2) of the true best, eps =
//         2^-24 and the largest such c taken.
// Cost    assign: dims * n_centroids multiplications and as many additions a row, bound by
//         arithmetic; the centroids (dims * n_padded * 4 bytes) stay in L1/L2. accumulate: dims
//         additions a row.
// Source  Lloyd 1982; codes as in Jegou, Douze and Schmid, TPAMI 2011, section II; per sub-space of
//         cached keys as in PQCache (arXiv:2407.12820).
#pragma once

#include "kernels/pq/pq_codes.h"
#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

struct PqLoadArgs {
  TensorType type;   // f16, q8_0 or q4_0, in attn.h's layout of a vector
  const u8* rows;    // the sub-space's dims of the first key
  u64 stride_bytes;  // from key to key
  f32* x;            // [n_rows, dims]
  u32 n_rows;
  u32 dims;  // % 32 == 0 but for f16
};
using PqLoadFn = void (*)(const PqLoadArgs& args);
void pq_load_generic(const PqLoadArgs& args);
void pq_load_avx2(const PqLoadArgs& args);
void pq_load_avx512(const PqLoadArgs& args);

struct PqAssignArgs {
  const f32* x;
  u64 x_stride;  // elements
  const f32* centroids;
  const f32* half_norms;
  u8* codes;
  u32 n_rows;
  u32 dims;
  u32 n_padded;
};
using PqAssignFn = void (*)(const PqAssignArgs& args);
void pq_assign_generic(const PqAssignArgs& args);
void pq_assign_avx2(const PqAssignArgs& args);
void pq_assign_avx512(const PqAssignArgs& args);

struct PqAccumulateArgs {
  const f32* x;
  u64 x_stride;
  const u8* codes;
  i64* sums;
  u32* counts;
  u32 n_rows;
  u32 dims;
};
using PqAccumulateFn = void (*)(const PqAccumulateArgs& args);
void pq_accumulate_generic(const PqAccumulateArgs& args);
void pq_accumulate_avx2(const PqAccumulateArgs& args);
void pq_accumulate_avx512(const PqAccumulateArgs& args);

// Moves the centroids by the sums of an iteration. Cheap beside the rows, so only portable.
struct PqUpdateArgs {
  const i64* sums;
  const u32* counts;
  f32* centroids;   // in and out
  f32* half_norms;  // out
  u32 dims;
  u32 n_centroids;
};
// Returns the sum of the squared distances that the centroids moved.
f64 pq_update(const PqUpdateArgs& args);
// Computes half_norms of new centroids.
void pq_half_norms(const f32* centroids, u32 dims, u32 n_centroids, f32* half_norms);

}  // namespace tarn::kernels
