// Measures the time of each GPU kernel of a decode step, and its read rate as a share of plain
// copies. One run measures all, by the device's own events.
//
//   products   of each type with a layout, on a matrix of at least weight_bytes_min, 1, 4 and 8
//              rows; attention over KV at depth. The calls of a measurement walk through copies in
//              a pool several times the L2, so that no cache helps, as on an Orin.
//   prompt     the products of a prompt's rows, for each supported type: operations a second; at
//              the most rows also methods that the engine does not use (prompt_bench.cpp)
//   step       every kernel of one token of an 8B in its real shape: their number, and their total
//              time without the gaps between them
//   launches   a kernel with nothing to do, in a graph and without
//   selection  the kernels of a row with selection, by pairs of codes and token by token, over the
//              indexes of all layers (select_bench.cpp); and a token's total
//
// A figure is the best of `repetitions` graphs of `calls_per_graph` calls, after one warm-up.
#pragma once

#include <string>
#include <vector>

#include "kernels/gpu_table.h"
#include "platform/clock/clock.h"
#include "platform/gpu/device.h"
#include "platform/gpu/gpu_blas.h"

namespace tarn::gpu_check {

// Defaults: Llama 3.1 8B as Q4_K_M.
struct BenchShape {
  u32 d_model = 4096, n_ff = 14336, n_heads = 32, n_kv_heads = 8, head_dim = 128;
  u32 n_layers = 32;
  u32 n_layers_more_bits = 16;  // layers with q6_k v and down, by llama.cpp's mix
  u32 n_vocab = 128256;
  u64 weight_bytes_min = 64 * kMiB;
  u64 pool_bytes_min = 256 * kMiB;
  std::vector<u32> depths = {4096, 32768};
  std::vector<u32> prompt_rows = {16, 64, 512};  // 16: against two decode products of 8
  u32 step_depth = 576;                          // pp512 and half of tg128
  // Selection: context lengths, tokens read, and codes: the default's, and those of the paper for
  // longer contexts, which have no pairs.
  std::vector<u32> select_depths = {8192, 32768, 131072};
  u32 n_sinks = 32, n_local = 512, k = 2048;
  u32 pair_bits = 6;  // of 2 sub-spaces
  u32 token_subspaces = 4, token_bits = 8;
  u32 calls_per_graph = 32;
  u32 repetitions = 5;
};

// One measurement. run.py derives the tables' other figures (per second, per token).
struct Figure {
  // "copy", "launch", "kernel", "prompt", "step" (a token of an 8B), "select" (beside a token)
  const char* group;
  std::string name;
  u32 rows = 1;
  u32 depth = 0;         // tokens of KV; 0: reads none
  u32 calls = 0;         // of a token
  u32 launches = 1;      // kernels of a call
  u64 weight_bytes = 0;  // 0: it reads KV or an index
  u64 bytes = 0;         // bytes that it must read; for selection's kernels also those written
  u64 ops = 0;           // for prompts: multiplications and additions
  f64 ns = 0;            // of a call
};

struct BenchArgs {
  Device* device = nullptr;
  const kernels::GpuTable* table = nullptr;
  Clock* clock = nullptr;
  GpuBlas* blas = nullptr;  // open; nullptr: absent
  BenchShape shape{};
};

// Throws tools::Failure. Leaves nothing behind on the device.
std::vector<Figure> bench_kernels(const BenchArgs& args);

std::string to_json(const std::vector<Figure>& figures);
std::string to_json(const DeviceFacts& facts);

}  // namespace tarn::gpu_check
