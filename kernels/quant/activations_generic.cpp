// The portable body of quantize_activations, and the one to read first.
#include <cstring>

#include "kernels/quant/activations.h"

namespace tarn::kernels {
namespace {

constexpr u32 kBlock = 32;

// Largest |x| of a block, compared as integers: for non-negative floats that is the same order, and
// it puts infinity and NaN above every number.
u32 largest_magnitude_bits(const f32* x) {
  u32 largest = 0;
  for (u32 i = 0; i < kBlock; ++i) {
    u32 bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

// |value| <= 127.5. Adding 1.5 * 2^23 moves the unit of the last place to 1, so the addition rounds
// to the nearest integer, ties to even.
i8 round_to_nearest_even(f32 value) {
  const f32 shifted = value + 12582912.0f;
  return static_cast<i8>(static_cast<i32>(shifted - 12582912.0f));
}

void quantize_block(const f32* x, i8* q, f32* scale, i32* sums) {
  const u32 bits = largest_magnitude_bits(x);
  f32 largest;
  std::memcpy(&largest, &bits, sizeof largest);
  *scale = largest / 127.0f;
  const bool representable = bits >= kSmallestQuantizableBits && bits < kInfinityBits;
  const f32 inverse = representable ? 127.0f / largest : 0.0f;
  sums[0] = sums[1] = 0;
  for (u32 i = 0; i < kBlock; ++i) {
    q[i] = representable ? round_to_nearest_even(x[i] * inverse) : i8{0};
    sums[i / 16] += q[i];
  }
}

}  // namespace

void quantize_activations_generic(const QuantizeActivationsArgs& args) {
  const u64 k = args.k;
  for (u64 n = 0; n < args.n_rows; ++n) {
    const f32* x = args.x + n * args.x_stride;
    for (u64 i = 0; i < k; i += kBlock) {
      quantize_block(x + i, args.q + n * k + i, args.scales + (n * k + i) / 32,
                     args.sums + (n * k + i) / 16);
    }
  }
}

}  // namespace tarn::kernels
