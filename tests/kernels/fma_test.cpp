// Goal    fma_f32() gives the bits of a fused multiply-add where the machine has none.
// Method  libm's fmaf, which is right by its definition, over operands of all sizes, sums that
//         cancel, sums half way between two f32, subnormals, infinities and NaN.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/common/scalar.h"
#include "tests/support/seed.h"

namespace tarn::kernels::fma_test {
namespace {

void check(f32 a, f32 b, f32 c) {
  CAPTURE(a);
  CAPTURE(b);
  CAPTURE(c);
  const f32 expected = std::fma(a, b, c), found = fma_f32(a, b, c);
  const bool is_same = std::isnan(expected)
                           ? std::isnan(found)
                           : std::bit_cast<u32>(found) == std::bit_cast<u32>(expected);
  CHECK(is_same);
}

f32 any_f32(test::Random& random) {
  return std::bit_cast<f32>(static_cast<u32>(random.below(u64{1} << 32)));
}

TEST_CASE("fma_f32 rounds once, as fmaf does") {
  test::Random random(test::seed_from_environment());
  for (u32 i = 0; i < 100'000; ++i) check(any_f32(random), any_f32(random), any_f32(random));
  for (u32 i = 0; i < 100'000; ++i) {  // of a size, so that no operand is lost
    const f32 a = random.normal(), b = random.normal();
    check(a, b, random.normal());
    check(a, b, -(a * b));
    check(a, b, std::nextafter(-(a * b), 1.0f));
  }
}

TEST_CASE("fma_f32 at sums half way between two f32") {
  test::Random random(test::seed_from_environment());
  for (u32 i = 0; i < 20'000; ++i) {
    const f32 c = 1 + static_cast<f32>(random.below(1u << 23)) * 0x1p-23f;
    const f32 sign = random.below(2) == 0 ? 1.0f : -1.0f;
    const f32 half = 0x1p-12f;  // half * half is half of c's last place
    check(sign * half, half, c);
    for (const f32 near : {std::nextafter(half, 0.0f), std::nextafter(half, 1.0f)}) {
      check(sign * half, near, c);
      check(sign * near, near, c);
      check(sign * half, near, -c);
    }
  }
}

TEST_CASE("fma_f32 of what is no ordinary number") {
  using Limits = std::numeric_limits<f32>;
  constexpr f32 kValues[] = {0.0f,
                             -0.0f,
                             1.0f,
                             -1.0f,
                             Limits::denorm_min(),
                             -Limits::denorm_min(),
                             Limits::min(),
                             3 * Limits::denorm_min(),
                             Limits::max(),
                             -Limits::max(),
                             Limits::infinity(),
                             -Limits::infinity(),
                             Limits::quiet_NaN(),
                             0x1p-75f,
                             0x1.8p-75f};
  for (const f32 a : kValues) {
    for (const f32 b : kValues) {
      for (const f32 c : kValues) check(a, b, c);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::fma_test
