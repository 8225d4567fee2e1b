// exp_f32.h's exponential for a whole register. F is F32x of one ISA; f32x_avx512.h says why
// everything is in an anonymous namespace.
#pragma once

#include "kernels/common/exp_f32.h"

namespace tarn::kernels {
namespace {

template <class F>
typename F::V exp_vector(typename F::V x) {
  // max and min return their second operand if one is NaN, so a NaN stays.
  const typename F::V clamped = F::min(F::set(ExpF32::kHigh), F::max(F::set(ExpF32::kLow), x));
  const typename F::V shifted =
      F::add(F::mul(clamped, F::set(ExpF32::kLog2E)), F::set(ExpF32::kRound));
  const typename F::V n = F::sub(shifted, F::set(ExpF32::kRound));
  const typename F::V r =
      F::sub(F::sub(clamped, F::mul(n, F::set(ExpF32::kLn2Hi))), F::mul(n, F::set(ExpF32::kLn2Lo)));
  typename F::V p = F::add(F::set(ExpF32::kC5), F::mul(r, F::set(ExpF32::kC6)));
  p = F::add(F::set(ExpF32::kC4), F::mul(r, p));
  p = F::add(F::set(ExpF32::kC3), F::mul(r, p));
  p = F::add(F::set(ExpF32::kC2), F::mul(r, p));
  p = F::add(F::set(1.0f), F::add(r, F::mul(F::mul(r, r), p)));
  return F::scale_by_power(p, shifted);
}

}  // namespace
}  // namespace tarn::kernels
