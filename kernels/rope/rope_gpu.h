// rope.h's rotation of heads in place on a GPU, q and k in one launch, with the CPU's bits.
//
//   heads     [rows_max, stride] f32: n_heads heads of head_dim, of q and of k
//   cos, sin  [rows_max, n_rot/2] f32 for the step's positions, from rope_table() on the host; a
//             step uploads them
//   rows      [n_rows, rows_max) keep their values
#pragma once

#include "kernels/rope/rope.h"

namespace tarn::kernels {

struct GpuHeads {
  f32* x;
  u64 stride;  // elements
  u32 n_heads;
};

struct GpuRopeArgs {
  GpuHeads q, k;  // k.n_heads may be 0
  const f32* cos;
  const f32* sin;
  const u32* n_rows;
  u32 rows_max;
  u32 head_dim;
  u32 n_rot;  // <= head_dim
  RopePairs pairs;
};

}  // namespace tarn::kernels
