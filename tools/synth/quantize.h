// Quantises computed weights by rounding to the nearest code of a scale for the largest magnitude
// of each sub-block. For matrices of few distinct magnitudes, {-a, 0, a} in each 32: zeros stay
// exact, magnitudes within 1 %. For trained weights use tools/quantize/quantizer.h, which has less
// error but keeps no value exactly.
#pragma once

#include <span>
#include <vector>

#include "kernels/quant/tensor_type.h"

namespace tarn::synth {

// values.size() is a multiple of the type's block. Throws std::invalid_argument for types with
// uneven levels, which cannot hold these values.
std::vector<u8> quantize(kernels::TensorType type, std::span<const f32> values);

}  // namespace tarn::synth
