// Goal    f16 and bf16 conversions are exact one way and round to nearest even the other way.
// Method  all 65,536 halves against arithmetic in f64; every border between two neighbouring
// halves,
//         one f32 to each side of it and on it; all 65,536 there and back.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/common/half.h"

namespace tarn::kernels::half_test {
namespace {

// From the definition: (-1)^s * 2^(e-15) * (1 + m/1024), or 2^-14 * m/1024 for e = 0.
f64 value_of_half(u32 half) {
  const i32 exponent = static_cast<i32>((half >> 10) & 31);
  const f64 mantissa = half & 1023;
  const f64 magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

bool is_nan_half(u32 half) { return (half & 0x7C00u) == 0x7C00u && (half & 0x3FFu) != 0; }

TEST_CASE("every half widens exactly and comes back") {
  for (u32 half = 0; half < 65536; ++half) {
    CAPTURE(half);
    const f32 value = f16_to_f32(static_cast<u16>(half));
    if (is_nan_half(half)) {
      REQUIRE(std::isnan(value));
      REQUIRE(f32_to_f16(value) == (half | 0x200u));
      continue;
    }
    if ((half & 0x7FFFu) == 0x7C00u) {
      REQUIRE(std::isinf(value));
    } else {
      REQUIRE(static_cast<f64>(value) == value_of_half(half));
    }
    REQUIRE(std::signbit(value) == ((half & 0x8000u) != 0));
    REQUIRE(f32_to_f16(value) == half);
  }
}

TEST_CASE("narrowing rounds to nearest even at every border") {
  constexpr f32 kInfinity = std::numeric_limits<f32>::infinity();
  for (u32 half = 0; half < 0x7C00; ++half) {
    CAPTURE(half);
    // 65,536 would be the half after the largest: results from the middle on are infinite.
    const f32 border = static_cast<f32>((value_of_half(half) + value_of_half(half + 1)) / 2);
    const u32 even = (half & 1u) == 0 ? half : half + 1;
    REQUIRE(f32_to_f16(border) == even);
    REQUIRE(f32_to_f16(-border) == (even | 0x8000u));
    REQUIRE(f32_to_f16(std::nextafter(border, 0.0f)) == half);
    REQUIRE(f32_to_f16(std::nextafter(border, kInfinity)) == half + 1);
  }
  CHECK(f32_to_f16(kInfinity) == 0x7C00);
  CHECK(f32_to_f16(std::numeric_limits<f32>::max()) == 0x7C00);
  CHECK(f32_to_f16(std::numeric_limits<f32>::denorm_min()) == 0);
}

TEST_CASE("bf16 is the upper half of an f32, rounded to nearest even") {
  for (u32 brain = 0; brain < 65536; ++brain) {
    CAPTURE(brain);
    const f32 value = bf16_to_f32(static_cast<u16>(brain));
    u32 bits;
    std::memcpy(&bits, &value, sizeof bits);
    REQUIRE(bits == brain << 16);
    const bool is_nan = (brain & 0x7F80u) == 0x7F80u && (brain & 0x7Fu) != 0;
    REQUIRE(f32_to_bf16(value) == (is_nan ? brain | 0x40u : brain));
    if ((brain & 0x7F80u) == 0x7F80u) continue;
    bits |= 0x8000u;  // the middle between two neighbours
    f32 border;
    std::memcpy(&border, &bits, sizeof border);
    REQUIRE(f32_to_bf16(border) == ((brain & 1u) == 0 ? brain : brain + 1));
    REQUIRE(f32_to_bf16(std::nextafter(border, 0.0f)) == brain);
  }
}

}  // namespace
}  // namespace tarn::kernels::half_test
