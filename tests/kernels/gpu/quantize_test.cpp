// Goal    every GPU quantises activations to the bits of the CPU's portable body, alone and as the
//         second output of rms_norm.
// Method  rows of every size of magnitude, ties, zeros, infinities and NaN; canaries in unused
//         rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "tests/kernels/gpu/gpus.h"
#include "tests/kernels/gpu/random_acts.h"
#include "tests/support/seed.h"

namespace tarn::kernels::quantize_test {
namespace {

using test::DeviceArray;

struct Case {
  const char* name;
  u32 k, n_rows, rows_max, gap;
};
constexpr Case kCases[] = {
    {"one block", 32, 1, 1, 0},
    {"no row in use", 64, 0, 2, 0},
    {"one short of a CTA", 224, 2, 3, 1},
    {"one over a CTA", 288, 3, 3, 5},
    {"a batch", 512, 8, 8, 0},
};

constexpr i8 kCanary = 0x5a;
constexpr u32 kSideCanary = 0xabcdef01u;

std::vector<f32> odd_rows(const Case& c, tarn::test::Random& random) {
  constexpr f32 kOdd[] = {std::numeric_limits<f32>::infinity(),
                          std::numeric_limits<f32>::quiet_NaN(),
                          -0.0f,
                          1e-40f,
                          0x1p-120f,
                          3e38f};
  std::vector<f32> x(u64{c.rows_max} * (c.k + c.gap));
  for (u64 i = 0; i < x.size(); ++i) {
    const u64 block = i / 32 % 7;
    x[i] = block == 0 ? 0.0f : random.normal() * (block == 1 ? 1e-38f : 1.0f);
    if (block == 2) x[i] = static_cast<f32>(random.below(255)) - 127.0f;  // halves: ties
    if (block == 2 && i % 2 == 0) x[i] += 0.5f;
    if (random.below(150) == 0) x[i] = kOdd[random.below(6)];
  }
  return x;
}

void check_same(const Case& c, const test::HostActs& want, const std::vector<i8>& q,
                const std::vector<U32x2>& side) {
  const u64 used = u64{c.n_rows} * c.k;
  REQUIRE(std::equal(want.q.begin(), want.q.begin() + static_cast<i64>(used), q.begin()));
  for (u64 i = used; i < q.size(); ++i) REQUIRE(q[i] == kCanary);
  for (u64 i = 0; i < side.size(); ++i) {
    CAPTURE(i);
    if (i >= used / 32) {
      REQUIRE(side[i].w[0] == kSideCanary);
      continue;
    }
    const f32 d = want.scales[i];
    // Which NaN it is may differ from machine to machine.
    if (d == d) REQUIRE(side[i].w[0] == want.side[i].w[0]);
    if (d != d) REQUIRE((side[i].w[0] & 0x7fffffffu) > 0x7f800000u);
    REQUIRE(side[i].w[1] == want.side[i].w[1]);
  }
}

TEST_CASE("quantize gives the bits of the CPU's portable body") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u64 stride = c.k + c.gap;
      const std::vector<f32> rows = odd_rows(c, random);
      const DeviceArray<f32> x(gpu, rows);
      const DeviceArray<i8> q(gpu, u64{c.rows_max} * c.k, kCanary);
      const DeviceArray<U32x2> side(gpu, u64{c.rows_max} * c.k / 32, {{kSideCanary, 0}});
      const DeviceArray<u32> n_rows(gpu, {c.n_rows});
      gpu.table->quantize({.x = x.data(),
                           .x_stride = stride,
                           .out = {q.data(), side.data()},
                           .n_rows = n_rows.data(),
                           .rows_max = c.rows_max,
                           .k = c.k},
                          gpu.stream);
      check_same(c, test::quantize_on_host(rows, stride, c.n_rows, c.k), q.host(), side.host());
    }
  }
}

TEST_CASE("rms_norm's quantised output is its output, quantised") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      std::vector<f32> rows(u64{c.rows_max} * c.k);
      for (f32& value : rows) value = random.normal();
      const DeviceArray<f32> x(gpu, rows), weight(gpu, std::vector<f32>(c.k, 0.75f));
      const DeviceArray<f32> out(gpu, rows.size(), 0.0f);
      const DeviceArray<i8> q(gpu, rows.size(), kCanary);
      const DeviceArray<U32x2> side(gpu, rows.size() / 32, {{kSideCanary, 0}});
      const DeviceArray<u32> n_rows(gpu, {c.n_rows});
      GpuRmsNormArgs args{.x = x.data(),
                          .x_stride = c.k,
                          .weight = weight.data(),
                          .out = out.data(),
                          .out_stride = c.k,
                          .quantized = {q.data(), side.data()},
                          .n_rows = n_rows.data(),
                          .rows_max = c.rows_max,
                          .n_heads = 1,
                          .d = c.k,
                          .eps = 1e-5f};
      gpu.table->rms_norm(args, gpu.stream);
      const test::HostActs want = test::quantize_on_host(out.host(), c.k, c.n_rows, c.k);
      check_same(c, want, q.host(), side.host());
      args.out = nullptr;  // the quantised form alone
      gpu.table->rms_norm(args, gpu.stream);
      check_same(c, want, q.host(), side.host());
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::quantize_test
