// tools/quantize/quantizer.h
//
// Weights as a tensor type's blocks, with the least squared error that a search over the blocks'
// scales finds: a row's product with activations that know nothing of the weights' rounding then
// has the least error, too. In q4_k and q5_k an element's error counts by the group's root mean
// square and its own magnitude together, as it does in llama.cpp. On a small trained model in q4_k,
// laid out in 17 ways by permuting its inner dimensions, plain squares had 2 % less error than
// llama.cpp and 4 % more KL from the original; with these weights the KL is as low as its. The
// other types gained nothing from them.
//
//   f32, f16, bf16  to nearest even
//   q8_0            d = max|x| / 127
//   q4_0, q5_0      d of either sign: ranges from a little less than max|x| to a little more, each
//                   refitted to its codes by least squares
//   q6_k            the same for each 16, then d and 8-bit scales
//   q4_k, q5_k      the same for each 32 with an offset <= 0, then d, dmin, 6-bit scales and
//                   minima, each tried with its neighbours
//
// Error  for the elements that share a scale, the root mean square is at most half of even steps
//        over their range, and what rounding the scales adds, times sqrt(2) where errors are
//        weighted (tests/tools/quantize/error_bound.h).
//        Less than ggml's reference on every kind of rows tried: tests/golden/quantize.
// Cost   about a microsecond for each 32 elements, but for q8_0 and the float types.
// The same bytes on every machine: additions and multiplications in a fixed order, no libm.
#pragma once

#include <span>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

// `values` are finite, of magnitude 65504 at most unless the type is f32 or bf16, and whole blocks;
// `out` has exactly their bytes. Any thread.
void quantize_blocks(kernels::TensorType type, std::span<const f32> values, std::span<u8> out);

}  // namespace tarn::tools
