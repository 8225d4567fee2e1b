// 32 elements: e u8, whose scale is 2^(e - 127); q 4 bits, a sign, two bits of exponent and one of
// mantissa. The table has twice the values, so d = 2^(e - 128), which is subnormal for e = 0 and 1.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct MXFP4 {
  static constexpr TypeTraits kTraits = {TensorType::mxfp4, "mxfp4", 32, 17};
  static constexpr Term kTerm = Term::scaled;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 1, .unit = 1}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 1, .shift = 0}};
  static constexpr i8 kTable[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  static constexpr i32 kLeast = -12, kMost = 12;
};

}  // namespace tarn::kernels
