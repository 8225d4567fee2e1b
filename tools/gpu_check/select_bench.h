// tools/gpu_check/select_bench.h
//
// How long the kernels of a row that selects take (kernels/pq/pq_gpu.h, topk_gpu.h,
// gather_slots_gpu.h), by pairs of codes and token by token, over contexts of several lengths.
//
//   memory   the indexes of all cache layers, one behind the other, as the engine has them: a call
//            takes the next layer's, as a token's kernels do. KV lies in the pool, in groups drawn
//            at random. Tables, scores, weights and places are one layer's, as in the engine
//   figures  bytes are what a kernel has to read and what it writes, each of them once
#pragma once

#include <vector>

#include "tools/gpu_check/bench_device.h"
#include "tools/gpu_check/kernel_bench.h"

namespace tarn::gpu_check {

struct SelectBenchArgs {
  BenchDevice* device = nullptr;
  const kernels::GpuTable* table = nullptr;
  const BenchShape* shape = nullptr;
  DeviceBytes pool{};  // random bytes
  u64 pool_bytes = 0;
};

// Adds rows to figures->kernels and to figures->select.
void bench_selection(const SelectBenchArgs& args, BenchFigures* figures);

}  // namespace tarn::gpu_check
