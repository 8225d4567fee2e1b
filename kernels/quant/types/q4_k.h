// 256 elements: d, dmin f16; for each 32 a scale and a minimum of 6 bits, in 12 bytes; q 4 bits.
// Weight = q.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q4K {
  static constexpr TypeTraits kTraits = {TensorType::q4_k, "q4_k", 256, 144};
  static constexpr Term kTerm = Term::with_minimum;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2},
                                       {.at = 2, .n_bytes = 2, .unit = 2},
                                       {.at = 4, .n_bytes = 12, .unit = 1}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 2, .at = 16, .shift = 0}};
  static constexpr i32 kLeast = 0, kMost = 15;
  static constexpr u32 kScales = 8;
  static constexpr i32 kScaleLeast = 0, kScaleMost = 63;

  // Bytes 0..3 and 4..7 have the first four scales and minima in their lower six bits; the last
  // four have their lower nibbles in bytes 8..11, and their upper bits in the top of bytes 0..7.
  template <class V>
  static void read_scales(const u8* bytes, u8* scales, u8* minima) {
    constexpr u64 kFour = u64{4} * V::kRows;
    const auto low6 = V::set(63), low4 = V::set(15), bits45 = V::set(48);
    for (u64 i = 0; i < kFour; i += V::kBytes) {
      const auto first = V::load(bytes + i), second = V::load(bytes + kFour + i);
      const auto third = V::load(bytes + 2 * kFour + i);
      V::store(scales + i, V::both(first, low6));
      V::store(minima + i, V::both(second, low6));
      V::store(scales + kFour + i,
               V::merge(V::both(third, low4), V::template right<2>(first), bits45));
      V::store(minima + kFour + i, V::merge(V::both(V::template right<4>(third), low4),
                                            V::template right<2>(second), bits45));
    }
  }
  template <class Int>
  static void write_scales(const Int* scales, const Int* minima, u8* bytes) {
    for (u32 i = 0; i < 4; ++i) {
      bytes[i] = static_cast<u8>(scales[i] | scales[i + 4] >> 4 << 6);
      bytes[i + 4] = static_cast<u8>(minima[i] | minima[i + 4] >> 4 << 6);
      bytes[i + 8] = static_cast<u8>((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
    }
  }
};

}  // namespace tarn::kernels
