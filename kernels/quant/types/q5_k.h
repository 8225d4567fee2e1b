// 256 elements: a q4_k with a fifth bit of each q, which lies before the others.
#pragma once

#include "kernels/quant/types/q4_k.h"

namespace tarn::kernels {

struct Q5K : Q4K {
  static constexpr TypeTraits kTraits = {TensorType::q5_k, "q5_k", 256, 176};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 2, .at = 48, .shift = 0},
                                      {.bits = 1, .strips = 8, .at = 16, .shift = 4}};
  static constexpr i32 kMost = 31;
};

}  // namespace tarn::kernels
