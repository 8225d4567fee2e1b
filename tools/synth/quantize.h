// tools/synth/quantize.h
//
// Computed weights as a tensor type's blocks, by rounding to the nearest code of a scale that fits
// the largest magnitude of each sub-block. Meant for matrices of few distinct magnitudes, {-a, 0,
// a} in each 32: those keep their zeros exactly and their magnitudes within 1 %. Trained weights
// want tools/quantize/quantizer.h, which has less error on the whole and keeps nothing exactly.
#pragma once

#include <span>
#include <vector>

#include "kernels/quant/tensor_type.h"

namespace tarn::synth {

// values.size() is a multiple of the type's block.
std::vector<u8> quantize(kernels::TensorType type, std::span<const f32> values);

}  // namespace tarn::synth
