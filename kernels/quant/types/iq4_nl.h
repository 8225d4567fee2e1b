// 32 elements: d f16; q 4 bits. Weight = a table's entry q: steps that are finer around 0.
#pragma once

#include "kernels/quant/type_parts.h"

namespace tarn::kernels {

struct IQ4NL {
  static constexpr TypeTraits kTraits = {TensorType::iq4_nl, "iq4_nl", 32, 18};
  static constexpr Term kTerm = Term::scaled;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 2, .shift = 0}};
  static constexpr i8 kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
  static constexpr i32 kLeast = -127, kMost = 113;
};

}  // namespace tarn::kernels
