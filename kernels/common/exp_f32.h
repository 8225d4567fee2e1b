// Our f32 exponential: its constants, so that every ISA's body computes the same bits, and the form
// of a call.
//
//   x clamped to [kLow, kHigh]; n = nearest even integer to x * kLog2E (by adding kRound and taking
//   it away); r = (x - n*kLn2Hi) - n*kLn2Lo; p = 1 + r*(1 + r*(c2 + r*(c3 + r*(c4 + r*(c5 +
//   r*c6))))), each step a fused multiply-add; result p * 2^n.
//
// x - n*kLn2Hi is exact: kLn2Hi has 9 bits, and where n is large the difference is short. n is
// within -127 and 128, where the power is 0 and inf: so the result is 0 below about 2^-126.5, a
// subnormal one is rounded once, and it is inf above about 2^127.5. The polynomial is the minimax
// one of its form on |r| <= ln2/2 (Lawson's iteration over 4,001 Chebyshev nodes); its own relative
// error is 2^-27.8.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

struct ExpF32 {
  static constexpr f32 kLow = -88.0f;
  static constexpr f32 kHigh = 88.7f;
  static constexpr f32 kLog2E = 0x1.715476p+0f;
  static constexpr f32 kRound = 0x1.8p+23f;  // an f32 of n + kRound ends with the bits of n
  static constexpr f32 kLn2Hi = 0x1.63p-1f;
  static constexpr f32 kLn2Lo = -0x1.bd0106p-13f;
  static constexpr f32 kC2 = 0x1.fffffcp-2f;
  static constexpr f32 kC3 = 0x1.55549p-3f;
  static constexpr f32 kC4 = 0x1.5558f8p-5f;
  static constexpr f32 kC5 = 0x1.123b0ep-7f;
  static constexpr f32 kC6 = 0x1.6a2242p-10f;
};

// out[i] = exp(x[i]).
struct ExpArgs {
  const f32* x;
  f32* out;  // may be x
  u64 n;
};
using ExpFn = void (*)(const ExpArgs& args);

}  // namespace tarn::kernels
