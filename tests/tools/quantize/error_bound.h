// The bound of tools/quantize/quantizer.h, evaluated on a block: the root mean square error of each
// group of elements that share a scale is at most
//
//   that of even steps over the group's range      half a step; for the types without minima a step
//                                                   is max|x| / (n - 0.6), one of the ranges tried
//   or of uneven levels                             half of their widest gap; iq4's is 24, with
//                                                   max|x| = 0.84 * 127 among the ranges tried;
//                                                   mxfp4's is 1 below 4, with max|x| = 2 or more
//   + what rounding the scales to whole numbers adds   half a unit of d for each code, half of dmin
//   + f16's rounding of d and dmin                 2^-11 of the largest magnitude, taken twice
//
// all times sqrt(2) for types with minima, whose search weights each element with w = rms + |x|:
// then sum(e^2) <= sum(w e^2) / rms, and sum(w) = n (rms + mean |x|) <= 2 n rms.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/quant/dequant.h"
#include "kernels/quant/strip.h"
#include "tools/quantize/blocks.h"

namespace tarn::tools::test {

inline f64 float_bound(kernels::TensorType type, f64 largest) {
  using kernels::TensorType;
  if (type == TensorType::f32) return 0;
  if (type == TensorType::bf16) return largest * 0x1p-8;
  return largest * 0x1p-11 + 0x1p-25;  // the second below 2^-14
}

inline f64 rms_bound(const BlockForm& form, std::span<const f32> group,
                     const kernels::Strip& strip) {
  const auto [low_at, high_at] = std::ranges::minmax_element(group);
  const f64 largest = std::max(std::abs(*low_at), std::abs(*high_at));
  const f64 d = form.n_subs > 1 ? std::abs(strip.d) : 0.0, dmin = std::abs(strip.dmin);
  const f64 half = 0.5 * largest, f16_rounding = largest * 0x1p-10, n = form.code_most;
  if (form.has_exponent) return half / 2;
  if (form.code_most == 255) return half / 127 + f16_rounding;
  if (form.has_minima()) {
    const f64 range = *high_at - std::min(*low_at, 0.0f);
    return std::sqrt(2) * (0.5 * range / n + n * 0.5 * d + 0.5 * dmin + f16_rounding);
  }
  if (form.has_offset()) return 0.5 * (f64{*high_at} - *low_at) / n + f16_rounding;
  if (!form.levels.empty()) return 12 * largest / (0.84 * 127) + 127 * 0.5 * d + f16_rounding;
  const f64 zero = form.code_of_zero;
  return half / (zero - 0.6) + zero * 0.5 * d + f16_rounding;
}

// `blocks` are what became of `values`. Returns the root mean square error of all.
inline f64 check_error(kernels::TensorType type, std::span<const f32> values,
                       std::span<const u8> blocks) {
  const kernels::TypeTraits& traits = kernels::type_traits(type);
  std::vector<f32> back(values.size());
  kernels::dequantize_row(type, blocks.data(), values.size(), back.data());
  const bool is_float = traits.block_elems == 1;
  const u64 n_group = is_float ? 1 : traits.block_elems / block_form(type).n_subs;
  f64 total = 0;
  for (u64 at = 0; at < values.size(); at += n_group) {
    f64 squares = 0;
    for (u64 i = at; i < at + n_group; ++i) {
      const f64 error = f64{back[i]} - f64{values[i]};
      squares += error * error;
    }
    const auto group = values.subspan(at, n_group);
    const u8* block = blocks.data() + at / traits.block_elems * traits.block_bytes;
    const u32 strip_idx = static_cast<u32>(at % traits.block_elems / kernels::kStripElems);
    const f64 bound = is_float ? float_bound(type, std::abs(group[0]))
                               : rms_bound(block_form(type), group,
                                           kernels::strip_from_file(type, block, strip_idx));
    const f64 rms = std::sqrt(squares / static_cast<f64>(n_group));
    if (!(rms <= bound)) {
      CAPTURE(at);
      CAPTURE(rms);
      CAPTURE(bound);
      FAIL_CHECK("the error is above its bound");
    }
    total += squares;
  }
  return std::sqrt(total / static_cast<f64>(values.size()));
}

}  // namespace tarn::tools::test
