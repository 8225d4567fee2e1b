// Goal    swiglu, add, gather, rope, embed and dequantize give the CPU's bits on every GPU.
// Method  the CPU's portable bodies are the oracle (their own tests hold them to f64); sizes around
//         a CTA; rows apart; canaries in gaps and unused rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "kernels/act/act.h"
#include "kernels/common/half.h"
#include "kernels/quant/dequant.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/kernels/gpu/random_acts.h"
#include "tests/kernels/quant/random_rows.h"

namespace tarn::kernels::elementwise_test {
namespace {

using test::DeviceArray;

constexpr f32 kCanary = -12345.0f;
constexpr u32 kGap = 5;

struct Case {
  const char* name;
  u32 d, n_rows, rows_max;
};
constexpr Case kCases[] = {
    {"one element", 1, 1, 1},      {"one short of a CTA", 255, 2, 3}, {"exactly a CTA", 256, 1, 2},
    {"one over a CTA", 257, 3, 3}, {"whole blocks of 32", 352, 2, 2}, {"no row in use", 32, 0, 2},
};

std::vector<f32> random_vector(tarn::test::Random& random, u64 n, f32 magnitude) {
  std::vector<f32> values(n);
  for (f32& value : values) value = random.normal() * magnitude;
  return values;
}

bool same(const std::vector<f32>& a, const std::vector<f32>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(f32)) == 0;
}

TEST_CASE("swiglu gives the CPU's bits, and its quantised output is its output, quantised") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u64 stride = c.d + kGap;
      auto gate = random_vector(random, stride * c.rows_max, 30.0f);
      for (u32 i = 0; i < 16 && i < c.d; ++i) {  // to both sides of exp's border to infinity
        gate[i] = -88.36f - 0.002f * static_cast<f32>(i);
      }
      const auto up = random_vector(random, stride * c.rows_max, 2.0f);
      std::vector<f32> want(gate.size(), kCanary);
      for (u32 n = 0; n < c.n_rows; ++n) {
        swiglu_generic({&gate[n * stride], &up[n * stride], &want[n * stride], c.d});
      }
      const bool quantizes = c.d % 32 == 0;
      const DeviceArray<f32> device_gate(gpu, gate), device_up(gpu, up);
      const DeviceArray<f32> out(gpu, gate.size(), kCanary);
      const DeviceArray<i8> q(gpu, u64{c.rows_max} * c.d, i8{0});
      const DeviceArray<U32x2> side(gpu, u64{c.rows_max} * (c.d / 32 + 1), {{0, 0}});
      const DeviceArray<u32> n_rows(gpu, {c.n_rows});
      gpu.table->swiglu({.gate = device_gate.data(),
                         .up = device_up.data(),
                         .in_stride = stride,
                         .out = out.data(),
                         .out_stride = stride,
                         .quantized = {quantizes ? q.data() : nullptr, side.data()},
                         .n_rows = n_rows.data(),
                         .rows_max = c.rows_max,
                         .d = c.d},
                        gpu.stream);
      CHECK(same(out.host(), want));
      if (!quantizes) continue;
      const test::HostActs acts = test::quantize_on_host(want, stride, c.n_rows, c.d);
      const std::vector<i8> got = q.host();
      const std::vector<U32x2> got_side = side.host();
      CHECK(std::equal(acts.q.begin(), acts.q.end(), got.begin()));
      for (u64 i = 0; i < acts.side.size(); ++i) {
        CHECK(acts.side[i].w[0] == got_side[i].w[0]);
        CHECK(acts.side[i].w[1] == got_side[i].w[1]);
      }
    }
  }
}

TEST_CASE("add and gather give the CPU's bits") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u64 stride = c.d + kGap;
      const auto x = random_vector(random, stride * c.rows_max, 1.0f);
      const auto y = random_vector(random, u64{c.d} * c.rows_max, 1.0f);
      std::vector<f32> sums = x, gathered(u64{c.d} * c.rows_max, kCanary);
      std::vector<u32> rows(c.rows_max);
      for (u32 n = 0; n < c.n_rows; ++n) {
        rows[n] = static_cast<u32>(random.below(c.rows_max));
        add_generic({&sums[n * stride], &y[u64{n} * c.d], c.d});
        std::copy_n(&x[rows[n] * stride], c.d, &gathered[u64{n} * c.d]);
      }
      const DeviceArray<f32> source(gpu, x), target(gpu, x), other(gpu, y);
      const DeviceArray<f32> out(gpu, gathered.size(), kCanary);
      const DeviceArray<u32> n_rows(gpu, {c.n_rows}), device_rows(gpu, rows);
      gpu.table->add({target.data(), stride, other.data(), c.d, n_rows.data(), c.rows_max, c.d},
                     gpu.stream);
      CHECK(same(target.host(), sums));
      gpu.table->gather({source.data(), stride, device_rows.data(), out.data(), c.d, n_rows.data(),
                         c.rows_max, c.d},
                        gpu.stream);
      CHECK(same(out.host(), gathered));
    }
  }
}

TEST_CASE("rope turns q and k as the CPU does") {
  struct Shape {
    u32 n_q, n_k, head_dim, n_rot, n_rows;
    RopePairs pairs;
  };
  constexpr Shape kShapes[] = {
      {4, 2, 128, 128, 2, RopePairs::adjacent}, {4, 2, 64, 64, 3, RopePairs::halves},
      {3, 1, 80, 32, 1, RopePairs::halves},     {2, 2, 8, 6, 2, RopePairs::adjacent},
      {1, 0, 16, 16, 1, RopePairs::halves},     {2, 1, 16, 16, 0, RopePairs::adjacent}};
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Shape& s : kShapes) {
      CAPTURE(s.head_dim);
      CAPTURE(s.n_rot);
      const u32 rows_max = s.n_rows + 1;
      const u64 q_stride = u64{s.n_q} * s.head_dim + kGap, k_stride = u64{s.n_k} * s.head_dim;
      std::vector<f32> q = random_vector(random, q_stride * rows_max, 1.0f);
      std::vector<f32> k = random_vector(random, k_stride * rows_max, 1.0f);
      const DeviceArray<f32> device_q(gpu, q), device_k(gpu, k);
      const auto cos = random_vector(random, u64{rows_max} * s.n_rot / 2, 1.0f);
      const auto sin = random_vector(random, u64{rows_max} * s.n_rot / 2, 1.0f);
      const DeviceArray<f32> device_cos(gpu, cos), device_sin(gpu, sin);
      const DeviceArray<u32> n_rows(gpu, {s.n_rows});
      gpu.table->rope({.q = {device_q.data(), q_stride, s.n_q},
                       .k = {device_k.data(), k_stride, s.n_k},
                       .cos = device_cos.data(),
                       .sin = device_sin.data(),
                       .n_rows = n_rows.data(),
                       .rows_max = rows_max,
                       .head_dim = s.head_dim,
                       .n_rot = s.n_rot,
                       .pairs = s.pairs},
                      gpu.stream);
      RopeArgs args{.x = q.data(),
                    .x_stride = q_stride,
                    .cos = cos.data(),
                    .sin = sin.data(),
                    .n_rows = s.n_rows,
                    .n_heads = s.n_q,
                    .head_dim = s.head_dim,
                    .n_rot = s.n_rot,
                    .pairs = s.pairs};
      rope_generic(args);
      args.x = k.data();
      args.x_stride = k_stride;
      args.n_heads = s.n_k;
      rope_generic(args);
      CHECK(same(device_q.host(), q));
      CHECK(same(device_k.host(), k));
    }
  }
}

TEST_CASE("embed and dequantize give dequantize_row's bits, rounded where f16 is wanted") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const TensorType type :
         {TensorType::f16, TensorType::q8_0, TensorType::q4_k, TensorType::q6_k}) {
      CAPTURE(type_traits(type).name);
      for (const u32 k : {256u, 1280u}) {
        constexpr u32 kRows = 19;
        const u64 bytes = row_bytes(type, k);
        const std::vector<u8> file = test::random_rows(random, type, kRows, k);
        std::vector<u8> tiles(tiled_bytes(type, kRows, k));
        for (u32 r = 0; r < kRows; r += kTileRows) {
          const u32 n = std::min(kRows - r, kTileRows);
          gpu_repack_rows({type, &file[r * bytes], n, k, &tiles[r * bytes]});
        }
        const DeviceArray<u8> weights(gpu, tiles);
        const std::vector<u32> tokens = {18, 0, 7, 7, 99};  // the last is not in use
        const u64 stride = k + kGap;
        std::vector<f32> want(tokens.size() * stride, kCanary), row(k);
        for (u64 n = 0; n + 1 < tokens.size(); ++n) {
          dequantize_row(type, &file[tokens[n] * bytes], k, &want[n * stride]);
        }
        const DeviceArray<u32> device_tokens(gpu, tokens), n_rows(gpu, {4});
        const DeviceArray<f32> out(gpu, want.size(), kCanary);
        gpu.table->embed(
            {type, weights.data(), k, device_tokens.data(), out.data(), stride, n_rows.data(), 5},
            gpu.stream);
        CHECK(same(out.host(), want));
        const DeviceArray<u16> halves(gpu, u64{kRows} * k, u16{0xffff});
        gpu.table->dequantize({type, weights.data(), kRows, k, halves.data()}, gpu.stream);
        const std::vector<u16> got = halves.host();
        for (u32 r = 0; r < kRows; ++r) {
          dequantize_row(type, &file[r * bytes], k, row.data());
          for (u32 i = 0; i < k; ++i) REQUIRE(got[u64{r} * k + i] == f32_to_f16(row[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::elementwise_test
