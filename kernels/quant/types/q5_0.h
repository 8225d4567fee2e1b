// 32 elements: d f16; bit 4 of each q, then its lower bits. Weight = q - 16.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q5_0 {
  static constexpr TypeTraits kTraits = {TensorType::q5_0, "q5_0", 32, 22};
  static constexpr Term kTerm = Term::scaled;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 6, .shift = 0},
                                      {.bits = 1, .strips = 1, .at = 2, .shift = 4}};
  static constexpr i32 kLeast = -16, kMost = 15;
};

}  // namespace tarn::kernels
