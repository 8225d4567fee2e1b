// Goal    every GPU computes the product of f16 rows that kernels/matmul/matmul_gpu.h describes; so
//         does its vendor's library, where there is one.
// Method  an f64 oracle over the f16 numbers; sizes around a CTA's square and a step along k; bias,
//         sums into the output; canaries in gaps and unused rows; a row alone has the batch's bits.
//         The library is held to the same bound, on a real GPU; where it is absent, the test says
//         so.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/common/half.h"
#include "platform/gpu/gpu_blas.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/support/seed.h"

namespace tarn::kernels::matmul_test {
namespace {

using test::DeviceArray;

struct Case {
  const char* name;
  u32 k, n_rows, rows_max, n_out;
  bool with_bias;
  Store store;
};
constexpr Case kCases[] = {
    {"one of each", 32, 1, 1, 1, false, Store::set},
    {"one short of a square", 64, 63, 64, 63, true, Store::set},
    {"one over a square", 96, 65, 66, 65, false, Store::add},
    {"a few rows of many", 160, 9, 130, 40, true, Store::add},
    {"no row in use", 32, 0, 2, 5, false, Store::set},
};

constexpr f32 kCanary = -12345.0f;
constexpr u32 kGap = 3;

struct Problem {
  std::vector<f32> x;  // [rows_max, k + kGap]
  std::vector<u16> w;
  std::vector<f32> bias;
};

std::vector<f32> run(const test::Gpu& gpu, const Case& c, const Problem& p) {
  const DeviceArray<f32> x(gpu, p.x), bias(gpu, p.bias);
  const DeviceArray<u16> halves(gpu, u64{c.rows_max} * c.k, u16{0xffff}), w(gpu, p.w);
  const DeviceArray<f32> out(gpu, u64{c.rows_max} * (c.n_out + kGap), kCanary);
  const DeviceArray<u32> n_rows(gpu, {c.n_rows});
  gpu.table->narrow({x.data(), c.k + kGap, halves.data(), n_rows.data(), c.rows_max, c.k},
                    gpu.stream);
  gpu.table->matmul({.x = halves.data(),
                     .w = w.data(),
                     .bias = c.with_bias ? bias.data() : nullptr,
                     .out = out.data(),
                     .out_stride = c.n_out + kGap,
                     .n_rows = n_rows.data(),
                     .rows_max = c.rows_max,
                     .n_out = c.n_out,
                     .k = c.k,
                     .store = c.store},
                    gpu.stream);
  return out.host();
}

void check_against_oracle(const Case& c, const Problem& p, const std::vector<f32>& out) {
  const u64 stride = c.n_out + kGap;
  for (u64 at = 0; at < out.size(); ++at) {
    const u64 n = at / stride, r = at % stride;
    if (n >= c.n_rows || r >= c.n_out) {
      REQUIRE(out[at] == kCanary);
      continue;
    }
    f64 want = 0.0, magnitude = 0.0, extra = 0.0;
    for (u64 i = 0; i < c.k; ++i) {
      const f64 x = f64{f16_to_f32(f32_to_f16(p.x[n * (c.k + kGap) + i]))};
      const f64 term = x * f64{f16_to_f32(p.w[r * c.k + i])};
      want += term;
      magnitude += std::abs(term);
    }
    if (c.with_bias) {
      want += f64{p.bias[r]};
      extra += std::abs(want);
    }
    if (c.store == Store::add) {
      want += f64{kCanary};
      extra += std::abs(want);
    }
    // As the header promises, and a rounding for each addition behind it.
    const f64 bound = 0x1p-23 * (2 * (c.k + 16) * magnitude + extra);
    REQUIRE(std::abs(f64{out[at]} - want) <= bound);
  }
}

TEST_CASE("matmul agrees with the f64 oracle, and a row alone with the batch, on every GPU") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (Case c : kCases) {
      CAPTURE(c.name);
      Problem p;
      p.x.resize(u64{c.rows_max} * (c.k + kGap));
      p.bias.resize(c.n_out);
      for (f32& x : p.x) x = random.normal();
      for (f32& b : p.bias) b = random.normal();
      for (u64 i = 0; i < u64{c.n_out} * c.k; ++i) p.w.push_back(f32_to_f16(random.normal()));
      const std::vector<f32> batch = run(gpu, c, p);
      check_against_oracle(c, p, batch);
      if (c.n_rows == 0) continue;
      const u64 last = c.n_rows - 1;
      p.x.erase(p.x.begin(), p.x.begin() + static_cast<i64>(last * (c.k + kGap)));
      p.x.resize(c.k + kGap);
      c.n_rows = c.rows_max = 1;
      const std::vector<f32> alone = run(gpu, c, p);
      const u64 stride = c.n_out + kGap;
      CHECK(std::memcmp(alone.data(), &batch[last * stride], stride * sizeof(f32)) == 0);
    }
  }
}

// out[m, n] of the library against f64.
void check_product(const test::Gpu& gpu, GpuBlas& blas, u32 m, u32 n, u32 k,
                   tarn::test::Random& random) {
  std::vector<u16> x(u64{m} * k), w(u64{n} * k);
  for (u16& value : x) value = f32_to_f16(random.normal());
  for (u16& value : w) value = f32_to_f16(random.normal());
  const DeviceArray<u16> device_x(gpu, x), device_w(gpu, w);
  const DeviceArray<f32> device_out(gpu, u64{m} * n, kCanary);
  blas.product({device_x.data(), device_w.data(), device_out.data(), m, n, k}, gpu.stream);
  const std::vector<f32> out = device_out.host();
  REQUIRE(blas.check().has_value());
  for (u64 at = 0; at < out.size(); ++at) {
    const u16* row = &x[at / n * k];
    const u16* weights = &w[at % n * k];
    f64 want = 0, magnitude = 0;
    for (u32 i = 0; i < k; ++i) {
      const f64 term = f64{f16_to_f32(row[i])} * f64{f16_to_f32(weights[i])};
      want += term;
      magnitude += std::abs(term);
    }
    REQUIRE(std::abs(f64{out[at]} - want) <= 0x1p-23 * 2 * (k + 16) * magnitude);
  }
}

TEST_CASE("cuBLAS's product agrees with the f64 oracle, where it opens") {
  constexpr u64 kWorkspaceBytes = 32 * kMiB;
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    if (gpu.device == nullptr) continue;
    auto* workspace = static_cast<std::byte*>(gpu.allocate(kWorkspaceBytes));
    GpuBlas blas;
    const auto opened = blas.open({.device = gpu.device,
                                   .workspace = DeviceBytes(workspace),
                                   .workspace_bytes = kWorkspaceBytes});
    if (opened) {
      for (const auto& [m, n, k] : {std::array{1u, 1u, 8u}, std::array{9u, 40u, 160u},
                                    std::array{65u, 63u, 96u}, std::array{300u, 70u, 1024u}}) {
        check_product(gpu, blas, m, n, k, random);
      }
    } else {
      MESSAGE("cuBLAS: absent: ", opened.error().hint);
    }
    blas.close();
    gpu.release(workspace);
  }
  if (test::gpus().size() == 1) MESSAGE("cuBLAS: absent: no GPU");
}

}  // namespace
}  // namespace tarn::kernels::matmul_test
