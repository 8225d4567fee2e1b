// 32 elements: d, m f16; bit 4 of each q, then its lower bits. Weight = q; m is added to d * q.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q5_1 {
  static constexpr TypeTraits kTraits = {TensorType::q5_1, "q5_1", 32, 24};
  static constexpr Term kTerm = Term::with_minimum;
  static constexpr bool kAddsMinimum = true;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2},
                                       {.at = 2, .n_bytes = 2, .unit = 2}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 8, .shift = 0},
                                      {.bits = 1, .strips = 1, .at = 4, .shift = 4}};
  static constexpr i32 kLeast = 0, kMost = 31;
};

}  // namespace tarn::kernels
