// Goal    every GPU computes the RMS norm that kernels/norm/norm_gpu.h describes.
// Method  an f64 oracle written from the formula; sizes around a warp and a CTA; canaries in the
//         gaps and in unused rows; the same bits in place, and for a row alone.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/gpu/gpus.h"
#include "tests/support/seed.h"

namespace tarn::kernels::norm_test {
namespace {

using test::DeviceArray;

struct Case {
  const char* name;
  u32 d, n_heads, n_rows, rows_max, gap;
  f32 magnitude, eps;
};

// clang-format off
constexpr Case kCases[] = {
    // name                        d heads rows max gap  magnitude  eps
    {"one element",                1,   1,   1,  1,  0,     1.0f, 1e-5f},
    {"one short of a warp",       31,   1,   2,  4,  3,     1.0f, 1e-5f},
    {"exactly a warp",            32,   1,   3,  4,  0,    10.0f, 1e-6f},
    {"one short of a CTA",      1023,   1,   1,  2,  1,     1.0f, 1e-5f},
    {"one over a CTA",          1025,   1,   2,  2,  0,     0.1f, 1e-5f},
    {"more than a CTA keeps",   5153,   1,   1,  1,  0,     1.0f, 1e-5f},
    {"a small model's row",     1536,   1,   2,  2,  0,     3.0f, 1e-5f},
    {"no row in use",             64,   1,   0,  2,  0,     1.0f, 1e-5f},
    {"a row that eps decides",    64,   1,   2,  2,  1,    1e-4f, 1e-5f},
    {"squares near overflow",     33,   1,   1,  1,  0,    1e18f, 1e-5f},
    {"heads of 128",             128,   8,   2,  4,  5,     1.0f, 1e-6f},
    {"five heads of 80",          80,   5,   3,  3,  0,    20.0f, 1e-6f},
    {"two heads of 16",           16,   2,   1,  2,  0,     1.0f, 1e-6f},
};
// clang-format on

constexpr f32 kCanary = -12345.0f;
constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();

struct Data {
  std::vector<f32> x, weight;
  u64 stride;
};

Data make_data(const Case& c, tarn::test::Random& random) {
  Data data;
  data.stride = u64{c.d} * c.n_heads + c.gap;
  data.x.resize(data.stride * c.rows_max);
  data.weight.resize(c.d);
  for (f32& x : data.x) x = random.normal() * c.magnitude;
  for (f32& w : data.weight) w = random.uniform(-2.0f, 2.0f);
  return data;
}

std::vector<f32> run(const test::Gpu& gpu, const Case& c, const Data& data, bool in_place) {
  const DeviceArray<f32> x(gpu, data.x), weight(gpu, data.weight);
  const DeviceArray<f32> out(gpu, data.x.size(), kCanary);
  const DeviceArray<u32> n_rows(gpu, {c.n_rows});
  const DeviceArray<f32>& target = in_place ? x : out;
  gpu.table->rms_norm({.x = x.data(),
                       .x_stride = data.stride,
                       .weight = weight.data(),
                       .out = target.data(),
                       .out_stride = data.stride,
                       .n_rows = n_rows.data(),
                       .rows_max = c.rows_max,
                       .n_heads = c.n_heads,
                       .d = c.d,
                       .eps = c.eps},
                      gpu.stream);
  return target.host();
}

void check_against_oracle(const Case& c, const Data& data, const std::vector<f32>& out) {
  std::vector<bool> written(out.size());
  for (u32 n = 0; n < c.n_rows; ++n) {
    for (u32 h = 0; h < c.n_heads; ++h) {
      const u64 first = n * data.stride + u64{h} * c.d;
      f64 sum = 0.0;
      for (u32 i = 0; i < c.d; ++i) sum += f64{data.x[first + i]} * f64{data.x[first + i]};
      const f64 r = 1.0 / std::sqrt(sum / c.d + f64{c.eps});
      for (u32 i = 0; i < c.d; ++i) {
        const f64 want = f64{data.x[first + i]} * r * f64{data.weight[i]};
        const f64 bound =
            kEpsilonF32 * (c.d / 64.0 + 8) * std::abs(want);  // as the header promises
        REQUIRE(std::abs(f64{out[first + i]} - want) <= bound);
        written[first + i] = true;
      }
    }
  }
  for (u64 i = 0; i < out.size(); ++i) REQUIRE((written[i] || out[i] == kCanary));
}

TEST_CASE("rms_norm agrees with the f64 oracle on every GPU") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const Data data = make_data(c, random);
      check_against_oracle(c, data, run(gpu, c, data, false));
    }
  }
}

TEST_CASE("rms_norm in place, and of a row alone, gives the same bits") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (Case c : kCases) {
      CAPTURE(c.name);
      const Data data = make_data(c, random);
      const std::vector<f32> batch = run(gpu, c, data, false);
      const std::vector<f32> in_place = run(gpu, c, data, true);
      for (u32 n = 0; n < c.n_rows; ++n) {
        const u64 bytes = u64{c.d} * c.n_heads * sizeof(f32);
        CHECK(std::memcmp(&in_place[n * data.stride], &batch[n * data.stride], bytes) == 0);
      }
      if (c.n_rows == 0) continue;
      c.n_rows = c.rows_max = 1;
      Data first = data;
      first.x.resize(data.stride);
      const std::vector<f32> alone = run(gpu, c, first, false);
      CHECK(std::memcmp(alone.data(), batch.data(), u64{c.d} * c.n_heads * sizeof(f32)) == 0);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::norm_test
