#include "kernels/common/math_f64.h"

#include <bit>

namespace tarn::kernels {
namespace {

// ln 2 in two parts; the first has 32 bits, so its product with an exponent is exact.
constexpr f64 kLn2Hi = 0x1.62e42feep-1;
constexpr f64 kLn2Lo = 0x1.a39ef35793c76p-33;

}  // namespace

f64 exp_f64(f64 x) {
  constexpr f64 kLog2E = 0x1.71547652b82fep+0;
  constexpr f64 kRound = 0x1.8p+52;
  if (x != x) return x;
  if (x < -746.0) return 0.0;
  if (x > 710.0) return __builtin_inf();
  const f64 n = (x * kLog2E + kRound) - kRound;
  const f64 r = (x - n * kLn2Hi) - n * kLn2Lo;
  // Taylor on |r| <= ln2/2; the first term left out is below 2^-57.
  f64 sum = 1.0;
  for (i32 k = 14; k >= 1; --k) sum = 1.0 + sum * r * (1.0 / k);
  // In two steps, so that a subnormal result is rounded once and 2^1024 is never needed.
  const i64 exponent = static_cast<i64>(n);
  const i64 first = exponent / 2;
  const f64 scale_first = std::bit_cast<f64>(static_cast<u64>(first + 1023) << 52);
  const f64 scale_second = std::bit_cast<f64>(static_cast<u64>(exponent - first + 1023) << 52);
  return sum * scale_first * scale_second;
}

f64 log_f64(f64 x) {
  constexpr f64 kSqrt2 = 0x1.6a09e667f3bcdp+0;
  const u64 bits = std::bit_cast<u64>(x);
  i32 exponent = static_cast<i32>((bits >> 52) & 0x7ff) - 1023;
  f64 m = std::bit_cast<f64>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > kSqrt2) {
    m *= 0.5;
    exponent += 1;
  }
  // ln m = 2 atanh(f); f^2 < 0.03, so a term gains a digit and a half.
  const f64 f = (m - 1.0) / (m + 1.0);
  const f64 f2 = f * f;
  f64 tail = 0.0;
  for (i32 k = 25; k >= 3; k -= 2) tail = (tail + 1.0 / k) * f2;
  return exponent * kLn2Hi + (exponent * kLn2Lo + (2.0 * f + 2.0 * f * tail));
}

}  // namespace tarn::kernels
