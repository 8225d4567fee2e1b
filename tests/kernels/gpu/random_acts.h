// Quantised activations for GPU products, made by the CPU's portable body.
#pragma once

#include <vector>

#include "kernels/quant/activations.h"
#include "kernels/quant/activations_gpu.h"

namespace tarn::kernels::test {

struct HostActs {
  std::vector<i8> q;        // [n, k]
  std::vector<f32> scales;  // [n, k/32]
  std::vector<U32x2> side;  // [n, k/32]
};

inline HostActs quantize_on_host(const std::vector<f32>& x, u64 stride, u32 n, u32 k) {
  HostActs acts{.q = std::vector<i8>(u64{n} * k),
                .scales = std::vector<f32>(u64{n} * k / 32),
                .side = std::vector<U32x2>(u64{n} * k / 32)};
  std::vector<i32> sums(u64{n} * k / 16);
  quantize_activations_generic({.x = x.data(),
                                .x_stride = stride,
                                .q = acts.q.data(),
                                .scales = acts.scales.data(),
                                .sums = sums.data(),
                                .n_rows = n,
                                .k = k});
  for (u64 i = 0; i < acts.side.size(); ++i) {
    acts.side[i].w[0] = __builtin_bit_cast(u32, acts.scales[i]);
    acts.side[i].w[1] =
        (static_cast<u32>(sums[2 * i]) & 0xffffu) | static_cast<u32>(sums[2 * i + 1]) << 16;
  }
  return acts;
}

}  // namespace tarn::kernels::test
