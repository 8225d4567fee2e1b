// 32 elements: d f16; q 4 bits. Weight = q - 8.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q4_0 {
  static constexpr TypeTraits kTraits = {TensorType::q4_0, "q4_0", 32, 18};
  static constexpr Term kTerm = Term::scaled;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 2, .shift = 0}};
  static constexpr i32 kLeast = -8, kMost = 7;
};

}  // namespace tarn::kernels
