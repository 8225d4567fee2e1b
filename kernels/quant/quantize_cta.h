// Device code: the 32 lanes of a warp quantise 32 consecutive activations, one each, as
// kernels/quant/activations.h says.
#pragma once

#include "kernels/common/cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/quant/activations.h"
#include "kernels/quant/activations_gpu.h"

namespace tarn::kernels::TARN_GPU {

// `value` is element i of the row of k; lane = i mod 32. All lanes call.
TARN_DEVICE void quantize_element(Cta& cta, f32 value, const GpuQuantized& out, u64 row, u64 k,
                                  u32 i) {
  const u32 bits = max_warp(cta, bits_of(value) & 0x7fffffffu);
  const f32 largest = float_of(bits);
  const bool representable = bits >= kSmallestQuantizableBits && bits < kInfinityBits;
  const f32 inverse = representable ? 127.0f / largest : 0.0f;
  // Adding 1.5 * 2^23 makes the unit of the last place 1: the addition rounds, ties to even.
  const f32 rounded = (value * inverse + 12582912.0f) - 12582912.0f;
  const i32 q = representable ? static_cast<i32>(rounded) : 0;
  i32 sum = q;  // over the 16 lanes of a half
  for (u32 mask = 8; mask > 0; mask /= 2) sum += cta.shuffle_xor(sum, mask);
  const i32 other = cta.shuffle_xor(sum, 16);
  store(out.q + row * k + i, static_cast<i8>(q));
  if (cta.lane() == 0) {
    const u32 sums = (static_cast<u32>(sum) & 0xffffu) | static_cast<u32>(other) << 16;
    store(out.side + (row * k + i) / 32, U32x2{{bits_of(largest / 127.0f), sums}});
  }
}

}  // namespace tarn::kernels::TARN_GPU
