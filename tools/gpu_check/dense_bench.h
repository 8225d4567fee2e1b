// tools/gpu_check/dense_bench.h
//
// The ways to a prompt's product that the engine does not go: weights dequantised to f16, rows
// narrowed to f16, and a dense product of both, by our plain kernel and by the GPU vendor's
// library; of f16 weights also the way it goes, by matvec, 8 rows at a time.
//
//   figures  "matmul q4_k", "cuBLAS q4_k": all of the three steps; beside kernel_bench's "matmat"
#pragma once

#include "platform/gpu/gpu_blas.h"
#include "tools/gpu_check/bench_device.h"
#include "tools/gpu_check/kernel_bench.h"

namespace tarn::gpu_check {

struct DenseArgs {
  BenchDevice* device = nullptr;
  const kernels::GpuTable* table = nullptr;
  GpuBlas* blas = nullptr;  // open; nullptr: absent
  u32 rows = 0, n_out = 0, k = 0;
  BenchDevice::Timing timing{};
  // The i-th matrix of a type, somewhere that no cache holds.
  std::function<const std::byte*(kernels::TensorType type, u32 i)> weights;
};

// Throws tools::Failure.
std::vector<PromptFigure> bench_dense(const DenseArgs& args);

}  // namespace tarn::gpu_check
