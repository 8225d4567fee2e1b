// 256 elements: q 6 bits, the lower four, then the upper two; for each 16 a scale i8; d f16.
// Weight = q - 32.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q6K {
  static constexpr TypeTraits kTraits = {TensorType::q6_k, "q6_k", 256, 210};
  static constexpr Term kTerm = Term::two_scales;
  static constexpr HeadPart kHead[] = {{.at = 208, .n_bytes = 2, .unit = 2},
                                       {.at = 192, .n_bytes = 16, .unit = 1}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 4, .at = 0, .shift = 0},
                                      {.bits = 2, .strips = 4, .at = 128, .shift = 4}};
  static constexpr i32 kLeast = -32, kMost = 31;
  static constexpr u32 kScales = 16;  // as they are
  static constexpr i32 kScaleLeast = -128, kScaleMost = 127;
};

}  // namespace tarn::kernels
