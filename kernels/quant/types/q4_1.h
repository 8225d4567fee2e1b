// 32 elements: d, m f16; q 4 bits. Weight = q; m is added to d * q.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q4_1 {
  static constexpr TypeTraits kTraits = {TensorType::q4_1, "q4_1", 32, 20};
  static constexpr Term kTerm = Term::with_minimum;
  static constexpr bool kAddsMinimum = true;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2},
                                       {.at = 2, .n_bytes = 2, .unit = 2}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 4, .shift = 0}};
  static constexpr i32 kLeast = 0, kMost = 15;
};

}  // namespace tarn::kernels
