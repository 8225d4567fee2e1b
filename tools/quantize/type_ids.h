// GGUF's ids of tensor types that can be written before kernels/ computes with them.
#pragma once

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

inline constexpr kernels::TensorType kQ4_1{3}, kQ5_1{7}, kQ2K{10}, kQ3K{11}, kIq4Nl{20}, kIq4Xs{23},
    kMxfp4{39};

}  // namespace tarn::tools
