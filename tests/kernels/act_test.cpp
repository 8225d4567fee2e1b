// Goal    exp, swiglu and add are what kernels/act/act.h says, with the same bits on every ISA.
// Method  f64 oracles (the host's libm in f64 is exact enough to judge f32); a stride through all
// f32
//         bit patterns and a list of borders for exp; sizes around the lanes, unaligned starts,
//         canaries, and outputs that are inputs for the rest.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::act_test {
namespace {

constexpr f32 kCanary = -12345.0f;
constexpr f32 kInf = std::numeric_limits<f32>::infinity();
constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();
constexpr u64 kLengths[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 172, 1000};

// Returns the unit of an f32 result near `value`; below the normal range it stays 2^-149.
f64 unit_in_last_place(f64 value) {
  const i32 exponent = value == 0.0 ? -126 : std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

std::vector<f32> exp_inputs() {
  std::vector<f32> inputs = {
      0.0f,    -0.0f,   1.0f,     -1.0f,    88.72283f, 88.72284f, 89.0f,   90.0f,  90.1f,  1e30f,
      -87.33f, -87.34f, -87.68f,  -87.69f,  -87.9f,    -88.0f,    -88.1f,  88.37f, 88.38f, 88.69f,
      88.7f,   -1e30f,  0.34657f, 0.34658f, -0.34658f, 1e-30f,    -1e-30f, 1e-42f, kInf,   -kInf};
  for (const f32 border : {-87.6823f, 88.3755f}) {  // of 0 and inf: 126.5 and 127.5 * ln 2
    for (i32 i = -200; i <= 200; ++i) {
      inputs.push_back(std::bit_cast<f32>(std::bit_cast<u32>(border) + static_cast<u32>(i)));
    }
  }
  constexpr u32 kStride = 4099;  // about a million patterns, all exponents and both signs
  for (u64 bits = 0; bits < u64{1} << 32; bits += kStride) {
    inputs.push_back(std::bit_cast<f32>(static_cast<u32>(bits)));
  }
  return inputs;
}

TEST_CASE("exp is within 2 ulp, 0 below its range and inf above, and the same bits on every ISA") {
  constexpr f64 kBorder = 1e-4;  // of the range, in powers of two: log2(e) is rounded
  const std::vector<f32> inputs = exp_inputs();
  std::vector<f32> generic(inputs.size());
  cpu_tables().back().exp({.x = inputs.data(), .out = generic.data(), .n = inputs.size()});
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    std::vector<f32> out(inputs.size());
    table.exp({.x = inputs.data(), .out = out.data(), .n = inputs.size()});
    for (u64 i = 0; i < inputs.size(); ++i) {
      CAPTURE(inputs[i]);
      if (std::isnan(inputs[i])) {
        REQUIRE(std::isnan(out[i]));
        continue;
      }
      REQUIRE(std::bit_cast<u32>(out[i]) == std::bit_cast<u32>(generic[i]));
      const f64 want = std::exp(f64{inputs[i]});
      const f64 power = std::log2(want);
      const bool may_be_inf = power > 127.5 - kBorder, may_be_zero = power < -126.5 + kBorder;
      if (may_be_inf && out[i] == kInf) continue;
      if (may_be_zero && out[i] == 0.0f) continue;
      REQUIRE(power < 127.5 + kBorder);
      REQUIRE(power > -126.5 - kBorder);
      REQUIRE(std::abs(f64{out[i]} - want) <= 2 * unit_in_last_place(want));
    }
  }
}

TEST_CASE("exp handles every tail length and writes nothing else") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    for (const u64 n : kLengths) {
      CAPTURE(table.isa);
      CAPTURE(n);
      std::vector<f32> x(n + 1), out(n + 17, kCanary), want(n);
      for (f32& value : x) value = random.uniform(-20.0f, 20.0f);
      cpu_tables().back().exp({.x = x.data() + 1, .out = want.data(), .n = n});
      table.exp({.x = x.data() + 1, .out = out.data() + 1, .n = n});
      CHECK(std::equal(want.begin(), want.end(), out.begin() + 1));
      CHECK(out[0] == kCanary);
      for (u64 i = n + 1; i < out.size(); ++i) REQUIRE(out[i] == kCanary);
      table.exp({.x = x.data() + 1, .out = x.data() + 1, .n = n});
      CHECK(std::equal(want.begin(), want.end(), x.begin() + 1));
    }
  }
}

TEST_CASE("swiglu agrees with the f64 oracle and with generic, bit for bit, on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u64 n : kLengths) {
    CAPTURE(n);
    std::vector<f32> gate(n + 3), up(n + 3);
    for (f32& x : gate) x = random.normal() * (random.below(8) == 0 ? 60.0f : 2.0f);
    for (f32& x : up) x = random.normal();
    for (u64 i = 3; i < n && i < 20; ++i) gate[i] = -88.36f - 0.002f * static_cast<f32>(i);
    std::vector<f32> generic(n + 19, kCanary);
    swiglu_generic(
        {.gate = gate.data() + 3, .up = up.data() + 1, .out = generic.data() + 3, .n = n});
    for (u64 i = 0; i < n; ++i) {
      const f64 g = f64{gate[i + 3]}, u = f64{up[i + 1]};
      const f64 want = g / (1.0 + std::exp(-g)) * u;
      // As the header promises; the second term is where exp(-gate) passes 2^127.5.
      const f64 bound = 4 * kEpsilonF32 * std::abs(want) + std::ldexp(std::abs(u), -121);
      REQUIRE(std::abs(f64{generic[i + 3]} - want) <= bound);
    }
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      std::vector<f32> out(n + 19, kCanary);
      table.swiglu({.gate = gate.data() + 3, .up = up.data() + 1, .out = out.data() + 3, .n = n});
      CHECK(std::memcmp(out.data(), generic.data(), out.size() * sizeof(f32)) == 0);
      std::vector<f32> in_place = gate;
      f32* gate_out = in_place.data() + 3;
      table.swiglu({.gate = gate_out, .up = up.data() + 1, .out = gate_out, .n = n});
      CHECK(std::memcmp(gate_out, generic.data() + 3, n * sizeof(f32)) == 0);
      in_place = up;
      f32* up_out = in_place.data() + 1;
      table.swiglu({.gate = gate.data() + 3, .up = up_out, .out = up_out, .n = n});
      CHECK(std::memcmp(up_out, generic.data() + 3, n * sizeof(f32)) == 0);
    }
  }
}

TEST_CASE("add adds each element once and nothing else") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    for (const u64 n : kLengths) {
      CAPTURE(table.isa);
      CAPTURE(n);
      std::vector<f32> x(n + 17), y(n + 2);
      for (f32& value : x) value = random.normal();
      for (f32& value : y) value = random.normal();
      std::vector<f32> want = x;
      for (u64 i = 0; i < n; ++i) want[i + 1] = x[i + 1] + y[i + 2];
      table.add({.x = x.data() + 1, .y = y.data() + 2, .n = n});
      CHECK(x == want);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::act_test
