// exp_f32.h's exponential for a whole register. F is F32x of one ISA; f32x_avx512.h says why
// everything is in an anonymous namespace.
#pragma once

#include "kernels/common/exp_f32.h"

namespace tarn::kernels {
namespace {

template <class F>
typename F::V exp_vector(typename F::V x) {
  // max and min return their second operand if one is NaN, so a NaN stays.
  using V = typename F::V;
  const V clamped = F::min(F::set(ExpF32::kHigh), F::max(F::set(ExpF32::kLow), x));
  const V shifted = F::fma(clamped, F::set(ExpF32::kLog2E), F::set(ExpF32::kRound));
  const V n = F::sub(shifted, F::set(ExpF32::kRound));
  V r = F::fma(n, F::set(-ExpF32::kLn2Hi), clamped);
  r = F::fma(n, F::set(-ExpF32::kLn2Lo), r);
  V p = F::fma(r, F::set(ExpF32::kC6), F::set(ExpF32::kC5));
  p = F::fma(r, p, F::set(ExpF32::kC4));
  p = F::fma(r, p, F::set(ExpF32::kC3));
  p = F::fma(r, p, F::set(ExpF32::kC2));
  p = F::fma(r, p, F::set(1.0f));
  p = F::fma(r, p, F::set(1.0f));
  return F::mul(p, F::power_of_low_bits(shifted));
}

}  // namespace
}  // namespace tarn::kernels
