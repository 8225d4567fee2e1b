// Quantises weights to a tensor type's blocks, with the least squared error that a search over the
// blocks' scales finds. A row's product with independent activations then has the least error, too.
// In q2_k, q4_k and q5_k an element's error is weighted by the group's root mean square and its own
// magnitude, as in llama.cpp. On a small trained model in q4_k, in 17 permutations of its inner
// dimensions, plain squares had 2 % less error than llama.cpp and 4 % more KL from the original.
// With these weights the KL equals llama.cpp's. The other types gained nothing from weights.
//
//   f32, f16, bf16    to nearest even
//   q8_0              d = max|x| / 127
//   q4_0, q5_0        d of either sign: ranges slightly below and above max|x|, each refitted to
//                     its codes by least squares
//   q4_1, q5_1        the same for a range with an offset
//   q3_k, q6_k        as q4_0 for each 16, then d and stored scales, each tried with its
//                     neighbours
//   q2_k, q4_k, q5_k  as q4_1 for each 16 or 32 with an offset <= 0, then d, dmin, stored scales
//                     and minima, each tried with its neighbours
//   iq4_nl, iq4_xs    as q4_0 and q6_k, with the type's levels instead of even codes
//   mxfp4             the power of two, of three, with the least squared error
//
// Error  for elements that share a scale, the root mean square is at most half a step of an even
//        grid over their range, plus the scales' rounding, times sqrt(2) for weighted errors
//        (tests/tools/quantize/error_bound.h). Less than ggml's reference on every kind of rows
//        tried: tests/golden/quantize.
// Cost   about half a microsecond for each 32 elements; less for q8_0 and the float types, twice as
//        much for iq4_nl and iq4_xs.
// The same bytes on every machine: additions and multiplications in a fixed order, no libm.
#pragma once

#include <span>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

// `values` are finite, of magnitude 65504 at most unless the type is f32 or bf16, and whole blocks;
// `out` has exactly their bytes. Any thread.
void quantize_blocks(kernels::TensorType type, std::span<const f32> values, std::span<u8> out);

}  // namespace tarn::tools
