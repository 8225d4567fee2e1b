// 32 elements: d f16; q i8[32]. Weight = q.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct Q8_0 {
  static constexpr TypeTraits kTraits = {TensorType::q8_0, "q8_0", 32, 34};
  static constexpr Term kTerm = Term::scaled;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2}};
  static constexpr Plane kPlanes[] = {{.bits = 8, .strips = 1, .at = 2, .shift = 0}};
  static constexpr i32 kLeast = -128, kMost = 127;
};

}  // namespace tarn::kernels
