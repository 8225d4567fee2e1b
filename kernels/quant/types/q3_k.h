// 256 elements: bit 2 of each q, then its lower bits; for each 16 a scale of 6 bits, in 12 bytes,
// of which 32 is 0; d f16. Weight = q - 4.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q3K {
  static constexpr TypeTraits kTraits = {TensorType::q3_k, "q3_k", 256, 110};
  static constexpr Term kTerm = Term::two_scales;
  static constexpr HeadPart kHead[] = {{.at = 108, .n_bytes = 2, .unit = 2},
                                       {.at = 96, .n_bytes = 12, .unit = 1}};
  static constexpr Plane kPlanes[] = {{.bits = 2, .strips = 4, .at = 32, .shift = 0},
                                      {.bits = 1, .strips = 8, .at = 0, .shift = 2}};
  static constexpr i32 kLeast = -4, kMost = 3;
  static constexpr u32 kScales = 16;
  static constexpr i32 kScaleLeast = -32, kScaleMost = 31;

  // The nibbles of bytes 0..7 are the lower bits of scales 0..7 and 8..15; bits 2i, 2i + 1 of byte
  // 8 + j are the upper ones of scale 4i + j.
  template <class V>
  static void read_scales(const u8* bytes, u8* scales, u8*) {
    constexpr u64 kFour = u64{4} * V::kRows;
    const auto low4 = V::set(15), bits45 = V::set(48), zero = V::set(32);
    for (u64 i = 0; i < kFour; i += V::kBytes) {
      const auto first = V::load(bytes + i), second = V::load(bytes + kFour + i);
      const auto third = V::load(bytes + 2 * kFour + i);
      const auto put = [&](u64 four, auto low, auto upper) {
        V::store(scales + four * kFour + i,
                 V::minus(V::merge(V::both(low, low4), upper, bits45), zero));
      };
      put(0, first, V::template right<-4>(third));
      put(1, second, V::template right<-2>(third));
      put(2, V::template right<4>(first), third);
      put(3, V::template right<4>(second), V::template right<2>(third));
    }
  }
  template <class Int>
  static void write_scales(const Int* scales, const Int*, u8* bytes) {
    for (u32 i = 0; i < 12; ++i) bytes[i] = 0;
    for (u32 i = 0; i < kScales; ++i) {
      const u32 scale = static_cast<u32>(scales[i] + 32);
      bytes[i % 8] |= static_cast<u8>((scale & 15) << (i / 8 * 4));
      bytes[8 + i % 4] |= static_cast<u8>((scale >> 4) << (i / 4 * 2));
    }
  }
};

}  // namespace tarn::kernels
