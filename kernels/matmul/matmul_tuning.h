// The size of the tasks that a caller cuts a matrix product into. Results do not depend on it.
#pragma once

#include "kernels/matmul/matmul.h"

namespace tarn::kernels {

// Tiles per matmul() call. The bodies share one packing of the activations among 8 tiles, so
// prefill takes a multiple of 8. A single row has little to pack and streams best over 4. More than
// 8 gains nothing and leaves fewer tasks to balance. Measured for q4_k, k = 4096, on an EPYC of
// family 26 (Zen 5, 2 cores, 1 MiB of L2 each): matmul_bench decode --type q4_k --tiles N, N = 2 to
// 32.
constexpr u32 matmul_tiles_per_task(TensorType type, u32 k, u32 n_acts) {
  static_cast<void>(type);  // the same for every type and k measured so far
  static_cast<void>(k);
  return n_acts == 1 ? 4 : 8;
}

}  // namespace tarn::kernels
