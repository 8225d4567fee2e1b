// Frequencies and angles in f64 with our own exp, ln, cos and sin: libm picks variants per CPU, and
// these values reach every later bit. Built without ISA flags, used by every table.
#include "kernels/common/math_f64.h"
#include "kernels/rope/rope.h"

namespace tarn::kernels {
namespace {

// Nearest even integer, for |value| <= 2^51.
f64 round_even(f64 value) {
  constexpr f64 kRound = 0x1.8p+52;
  return (value + kRound) - kRound;
}

struct SinCos {
  f64 sin, cos;
};

// Cody and Waite's reduction (Software Manual for the Elementary Functions, 1980, chapter 8): pi/2
// in three parts of at most 27 bits, so that n times a part is exact for n < 2^26, then Taylor
// series on |r| <= pi/4, whose first left-out term is below 2^-54.
SinCos sin_cos(f64 x) {
  constexpr f64 kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr f64 kPart1 = 0x1.921fb54p+0;
  constexpr f64 kPart2 = 0x1.10b461p-30;
  constexpr f64 kPart3 = 0x1.a62633145c06ep-58;
  const f64 n = round_even(x * kTwoOverPi);
  const f64 r = ((x - n * kPart1) - n * kPart2) - n * kPart3;
  const f64 r2 = r * r;
  f64 cos = 1.0, sin = 1.0;
  for (i32 k = 16; k >= 2; k -= 2) cos = 1.0 - cos * r2 / ((k - 1) * k);
  for (i32 k = 17; k >= 3; k -= 2) sin = 1.0 - sin * r2 / ((k - 1) * k);
  sin *= r;
  switch (static_cast<i64>(n) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace

void rope_frequencies(f64 base, f64 scale, u32 n_rot, const f32* factors, f64* inv_freq) {
  const f64 log_base = log_f64(base);
  for (u32 i = 0; i < n_rot / 2; ++i) {
    const f64 exponent = -2.0 * i / n_rot;
    const f64 factor = factors != nullptr ? f64{factors[i]} : 1.0;
    inv_freq[i] = exp_f64(exponent * log_base) * scale / factor;
  }
}

void rope_table(const RopeTableArgs& args) {
  const u32 n_pairs = args.n_rot / 2;
  for (u32 n = 0; n < args.n_rows; ++n) {
    for (u32 i = 0; i < n_pairs; ++i) {
      const SinCos turn = sin_cos(args.positions[n] * args.inv_freq[i]);
      args.cos[u64{n} * n_pairs + i] = static_cast<f32>(turn.cos);
      args.sin[u64{n} * n_pairs + i] = static_cast<f32>(turn.sin);
    }
  }
}

}  // namespace tarn::kernels
