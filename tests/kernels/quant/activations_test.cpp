// Goal    quantised activations are the nearest integers at the block's scale, every ISA gives the
//         same bits, and what cannot be represented is seen by the scale.
// Method  an f64 oracle per element; skewed and extreme blocks; rows alone and together; canaries.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/quant/activations.h"
#include "tests/kernels/quant/runnable_tables.h"
#include "tests/support/seed.h"

namespace tarn::kernels::activations_test {
namespace {

struct Quantized {
  std::vector<i8> q;
  std::vector<f32> scales;
  std::vector<i32> sums;
};
constexpr u32 kCanaries = 3;

Quantized quantize(QuantizeActivationsFn fn, const f32* x, u64 x_stride, u32 n_rows, u32 k) {
  const u64 n = u64{n_rows} * k;
  Quantized out{std::vector<i8>(n + kCanaries, 99), std::vector<f32>(n / 32 + kCanaries, 99.0f),
                std::vector<i32>(n / 16 + kCanaries, 99)};
  fn({.x = x,
      .x_stride = x_stride,
      .q = out.q.data(),
      .scales = out.scales.data(),
      .sums = out.sums.data(),
      .n_rows = n_rows,
      .k = k});
  for (u32 i = 0; i < kCanaries; ++i) {
    REQUIRE(out.q[n + i] == 99);
    REQUIRE(out.scales[n / 32 + i] == 99.0f);
    REQUIRE(out.sums[n / 16 + i] == 99);
  }
  return out;
}

bool same_bits(const Quantized& a, const Quantized& b) {
  return a.q == b.q && a.sums == b.sums &&
         std::memcmp(a.scales.data(), b.scales.data(), a.scales.size() * sizeof(f32)) == 0;
}

TEST_CASE("quantised activations agree with the f64 oracle on every ISA") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  constexpr u32 kRows = 5, kK = 352;
  constexpr u64 kStride = kK + 7;
  std::vector<f32> x(kRows * kStride + 1);
  for (u64 i = 0; i < x.size(); ++i) {
    const f32 magnitude = std::exp2(random.uniform(-60.0f, 60.0f));
    x[i] = random.normal() * (i / 32 % 3 == 0 ? magnitude : 1.0f);
  }
  for (const CpuTable& table : test::runnable_tables()) {
    CAPTURE(table.isa);
    CAPTURE(random.seed());
    const f32* start = x.data() + 1;  // unaligned
    const Quantized got = quantize(table.quantize_activations, start, kStride, kRows, kK);
    REQUIRE(same_bits(got, quantize(quantize_activations_generic, start, kStride, kRows, kK)));
    for (u64 n = 0; n < kRows; ++n) {
      for (u64 b = 0; b < kK / 32; ++b) {
        const f32* block = start + n * kStride + b * 32;
        f32 largest = 0;
        for (u32 i = 0; i < 32; ++i) largest = std::max(largest, std::abs(block[i]));
        REQUIRE(got.scales[n * (kK / 32) + b] == largest / 127.0f);
        i32 sum = 0;
        for (u32 i = 0; i < 32; ++i) {
          const i32 q = got.q[n * kK + b * 32 + i];
          const f64 exact = 127.0 * block[i] / largest;
          REQUIRE(std::abs(q - exact) <= 0.5 + 127 * 0x1.0p-23);
          REQUIRE(std::abs(q) <= 127);
          sum += q;
          if (i % 16 == 15) {
            REQUIRE(got.sums[(n * kK + b * 32 + i) / 16] == sum);
            sum = 0;
          }
        }
      }
    }
    for (u64 n = 0; n < kRows; ++n) {  // a row alone is the row among others
      const Quantized alone =
          quantize(table.quantize_activations, start + n * kStride, kStride, 1, kK);
      REQUIRE(std::memcmp(alone.q.data(), got.q.data() + n * kK, kK) == 0);
    }
  }
}

TEST_CASE("ties go to even, extremes to zero, and what is not finite reaches the scale") {
  constexpr f32 kInfinity = std::numeric_limits<f32>::infinity();
  constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
  for (const CpuTable& table : test::runnable_tables()) {
    CAPTURE(table.isa);
    std::vector<f32> x(32 * 6);
    f32* ties = x.data();
    ties[0] = 127.0f, ties[1] = 0.5f, ties[2] = 1.5f, ties[3] = -2.5f, ties[4] = -127.0f;
    f32* tiny = ties + 32;
    tiny[3] = 1e-40f, tiny[20] = -1e-38f;
    f32* infinite = ties + 64;
    infinite[0] = 1.0f, infinite[31] = -kInfinity;
    f32* nan = ties + 96;
    nan[0] = kInfinity, nan[17] = kNan;
    f32* smallest = ties + 128;  // the smallest magnitude that is quantised
    smallest[5] = 0x1.0p-120f, smallest[6] = -0x1.0p-121f;
    f32* zero = ties + 160;
    zero[9] = -0.0f;
    const Quantized got = quantize(table.quantize_activations, x.data(), x.size(), 1, 32 * 6);
    CHECK(got.q[0] == 127);
    CHECK(got.q[1] == 0);
    CHECK(got.q[2] == 2);
    CHECK(got.q[3] == -2);
    CHECK(got.q[4] == -127);
    for (u32 i = 32; i < 128; ++i) CHECK(got.q[i] == 0);
    CHECK(got.scales[1] == 1e-38f / 127.0f);
    CHECK(got.scales[2] == kInfinity);
    CHECK(std::isnan(got.scales[3]));
    CHECK(got.q[128 + 5] == 127);
    CHECK(got.q[128 + 6] == -64);  // -63.5, to even
    CHECK(got.scales[5] == 0.0f);
    for (u32 i = 160; i < 192; ++i) CHECK(got.q[i] == 0);
    for (u32 i = 2; i < 8; ++i) CHECK(got.sums[i] == 0);
  }
}

}  // namespace
}  // namespace tarn::kernels::activations_test
