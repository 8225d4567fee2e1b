// Goal    every table that runs here computes the RMS norm that kernels/norm/norm.h describes.
// Method  an f64 oracle written from the formula; sizes around the 16 lanes; unaligned starts;
// canaries
//         in the gaps between rows; all tables bit-equal to the generic one; a row alone is
//         bit-equal to the same row in a batch.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::norm_test {
namespace {

struct Case {
  const char* name;
  u32 d, n_rows, gap, misalign;
  f32 magnitude, eps;
};

// clang-format off
constexpr Case kCases[] = {
    // name                          d  rows gap off  magnitude  eps
    {"one element",                  1,   1,  0,  0,     1.0f, 1e-5f},
    {"one short of half a tree",     7,   2,  3,  1,     1.0f, 1e-5f},
    {"a head of 8",                  8,   3,  0,  0,     1.0f, 1e-6f},
    {"one short of the lanes",      15,   1,  2,  3,    10.0f, 1e-5f},
    {"exactly the lanes",           16,   2,  0,  1,     0.1f, 1e-5f},
    {"one over the lanes",          17,   2,  5,  0,     1.0f, 1e-5f},
    {"two lanes short of two",      30,   1,  0,  2,     1.0f, 1e-5f},
    {"an ffn of 172",              172,   3,  4,  5,   100.0f, 1e-6f},
    {"a model's row",             4096,   4,  0,  0,     3.0f, 1e-5f},
    {"a row that eps decides",      64,   2,  1,  1,    1e-4f, 1e-5f},
    {"squares near the overflow",   33,   1,  0,  0,    1e18f, 1e-5f},
};
// clang-format on

constexpr f32 kCanary = -12345.0f;
constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();

struct Data {
  std::vector<f32> x, weight;
  u64 stride;
};

Data make_data(const Case& c, test::Random& random) {
  Data data;
  data.stride = u64{c.d} + c.gap;
  data.x.resize(data.stride * c.n_rows + c.misalign);
  data.weight.resize(u64{c.d} + c.misalign);
  for (f32& x : data.x) x = random.normal() * c.magnitude;
  for (f32& w : data.weight) w = random.uniform(-2.0f, 2.0f);
  return data;
}

std::vector<f32> run(const CpuTable& table, const Case& c, const Data& data) {
  std::vector<f32> out(data.x.size() + 16, kCanary);
  table.rms_norm({.x = data.x.data() + c.misalign,
                  .x_stride = data.stride,
                  .weight = data.weight.data() + c.misalign,
                  .out = out.data() + c.misalign,
                  .out_stride = data.stride,
                  .n_rows = c.n_rows,
                  .d = c.d,
                  .eps = c.eps});
  return out;
}

void check_against_oracle(const Case& c, const Data& data, const std::vector<f32>& out) {
  std::vector<bool> written(out.size());
  for (u32 n = 0; n < c.n_rows; ++n) {
    const u64 row = n * data.stride + c.misalign;
    f64 sum = 0.0;
    for (u32 i = 0; i < c.d; ++i) sum += f64{data.x[row + i]} * f64{data.x[row + i]};
    const f64 r = 1.0 / std::sqrt(sum / c.d + f64{c.eps});
    for (u32 i = 0; i < c.d; ++i) {
      const f64 want = f64{data.x[row + i]} * r * f64{data.weight[c.misalign + i]};
      const f64 bound = kEpsilonF32 * (c.d / 64.0 + 4) * std::abs(want);  // as the header promises
      REQUIRE(std::abs(f64{out[row + i]} - want) <= bound);
      written[row + i] = true;
    }
  }
  for (u64 i = 0; i < out.size(); ++i) REQUIRE((written[i] || out[i] == kCanary));
}

TEST_CASE("rms_norm agrees with the f64 oracle and with generic, bit for bit, on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Data data = make_data(c, random);
    const std::vector<f32> generic = run(cpu_tables().back(), c, data);
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      const std::vector<f32> out = run(table, c, data);
      check_against_oracle(c, data, out);
      CHECK(std::memcmp(out.data(), generic.data(), out.size() * sizeof(f32)) == 0);
    }
  }
}

TEST_CASE("rms_norm of a row alone, and in place, gives the bits of the batch") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    for (const Case& c : kCases) {
      CAPTURE(table.isa);
      CAPTURE(c.name);
      const Data data = make_data(c, random);
      const std::vector<f32> batch = run(table, c, data);
      std::vector<f32> in_place = data.x;
      for (u32 n = 0; n < c.n_rows; ++n) {
        f32* row = in_place.data() + c.misalign + n * data.stride;
        table.rms_norm({.x = row,
                        .x_stride = data.stride,
                        .weight = data.weight.data() + c.misalign,
                        .out = row,
                        .out_stride = data.stride,
                        .n_rows = 1,
                        .d = c.d,
                        .eps = c.eps});
        CHECK(std::memcmp(row, batch.data() + c.misalign + n * data.stride, c.d * sizeof(f32)) ==
              0);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::norm_test
