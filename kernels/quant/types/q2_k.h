// 256 elements: for each 16 a scale and a minimum, 4 bits each; q 2 bits; d, dmin f16. Weight = q.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q2K {
  static constexpr TypeTraits kTraits = {TensorType::q2_k, "q2_k", 256, 84};
  static constexpr Term kTerm = Term::two_scales_minima;
  static constexpr HeadPart kHead[] = {{.at = 80, .n_bytes = 2, .unit = 2},
                                       {.at = 82, .n_bytes = 2, .unit = 2},
                                       {.at = 0, .n_bytes = 16, .unit = 1}};
  static constexpr Plane kPlanes[] = {{.bits = 2, .strips = 4, .at = 16, .shift = 0}};
  static constexpr i32 kLeast = 0, kMost = 3;
  static constexpr u32 kScales = 16;
  static constexpr i32 kScaleLeast = 0, kScaleMost = 15;

  // The scale is the lower nibble.
  template <class V>
  static void read_scales(const u8* bytes, u8* scales, u8* minima) {
    const auto low4 = V::set(15);
    for (u32 i = 0; i < kScales * V::kRows; i += V::kBytes) {
      const auto both = V::load(bytes + i);
      V::store(scales + i, V::both(both, low4));
      V::store(minima + i, V::both(V::template right<4>(both), low4));
    }
  }
  template <class Int>
  static void write_scales(const Int* scales, const Int* minima, u8* bytes) {
    for (u32 i = 0; i < kScales; ++i) bytes[i] = static_cast<u8>(scales[i] | minima[i] << 4);
  }
};

}  // namespace tarn::kernels
