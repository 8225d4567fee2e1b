// kernels/matmul/matmul_tuning.h
//
// How a caller cuts a matrix product into tasks for its threads. Results do not depend on it.
// Measured on an EPYC of family 26 (Zen 5, 2 cores, 1 MiB of L2 each) with tests/bench/matmul_bench.
#pragma once

#include "kernels/matmul/matmul.h"

namespace tarn::kernels {

// Tiles per matmul() call. The bodies pack activations once per 4 tiles, so a task is a multiple of
// 4; its weights are read once per 64 activation rows and should stay in L2 for the next 64.
constexpr u32 matmul_tiles_per_task(TensorType type, u32 k, u32 n_acts) {
  static_cast<void>(type);
  static_cast<void>(k);
  return n_acts >= 8 ? 8 : 4;
}

}  // namespace tarn::kernels
