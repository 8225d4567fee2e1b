// Goal    every GPU computes the products that kernels/matmul/matvec_gpu.h describes, with the same
//         bits whatever the batch, the bucket and the other matrices of the launch.
// Method  an f64 oracle over the dequantised rows of the file; sizes around a warp's chunks, a
//         CTA's rows and a tile; mixed types in one launch; bias, sums into the output; canaries in
//         unused rows and gaps. Buffers end where their last row ends, so AddressSanitizer sees a
//         step too far.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/gpu/products.h"

namespace tarn::kernels::matvec_test {
namespace {

using test::kCanary;
using test::kGap;
using test::ProductCase;
using test::ProductProblem;

constexpr TensorType kF16 = TensorType::f16, kQ8 = TensorType::q8_0, kQ4K = TensorType::q4_k,
                     kQ6K = TensorType::q6_k;

// clang-format off
const ProductCase kCases[] = {
    // name                                k rows bucket types              rows of each    bias   store
    {"f16: one chunk",                     8,  1, 1, {kF16},             {1},            false, Store::set},
    {"f16: one chunk over a warp",       264,  2, 2, {kF16},             {17},           true,  Store::set},
    {"f16: a batch",                    1000,  5, 8, {kF16},             {9},            false, Store::add},
    {"q8_0: one block",                   32,  1, 1, {kQ8},              {3},            false, Store::set},
    {"q8_0: half a block over a warp",   544,  3, 4, {kQ8},              {16},           true,  Store::add},
    {"q8_0: a batch",                   1056,  8, 8, {kQ8},              {33},           false, Store::set},
    {"q4_k: one block",                  256,  1, 1, {kQ4K},             {1},            false, Store::set},
    {"q4_k: a warp's chunks",           1024,  1, 1, {kQ4K},             {5},            true,  Store::set},
    {"q4_k: one block over two turns",  2304,  2, 2, {kQ4K},             {7},            false, Store::add},
    {"q4_k: a batch of four",           1280,  4, 4, {kQ4K},             {18},           false, Store::set},
    {"q4_k: a batch of eight",           512,  8, 8, {kQ4K},             {17},           true,  Store::set},
    {"q6_k: one block",                  256,  1, 1, {kQ6K},             {2},            false, Store::set},
    {"q6_k: one over a turn",           1280,  2, 2, {kQ6K},             {19},           false, Store::add},
    {"q6_k: a batch of seven",           768,  7, 8, {kQ6K},             {9},            true,  Store::set},
    {"q, k and v of three types",        256,  1, 1, {kQ4K, kQ8, kQ6K},  {24, 5, 8},     true,  Store::set},
    {"q, k and v for a batch",           512,  3, 4, {kQ4K, kQ4K, kQ6K}, {33, 16, 16},   false, Store::set},
    {"gate and up",                      768,  2, 2, {kQ4K, kQ4K},       {40, 40},       false, Store::set},
    {"f16 beside q8_0",                  256,  2, 2, {kF16, kQ8},        {10, 11},       true,  Store::add},
    {"no row in use",                    256,  0, 2, {kQ4K},             {4},            false, Store::set},
};
// clang-format on

constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();

using Outputs = std::vector<std::vector<f32>>;

Outputs run(const test::Gpu& gpu, const ProductCase& c, const ProductProblem& p, u32 n_rows,
            u32 bucket) {
  return test::run_product(gpu, gpu.table->matvec, c, p,
                           {.row_begin = 0, .n_rows = n_rows, .rows_max = bucket});
}

// Checks what the row's product is, and what the header allows it to be off.
void check_element(const ProductCase& c, const ProductProblem& p, u64 j, u32 n, u32 r, f32 got) {
  const TensorType type = c.types[j];
  std::vector<f32> w(c.k);
  dequantize_row(type, &p.rows[j][r * row_bytes(type, c.k)], c.k, w.data());
  f64 want = 0.0, magnitude = 0.0;
  const u64 first = u64{n} * c.k;
  if (type == kF16) {
    for (u32 i = 0; i < c.k; ++i) {
      want += f64{p.x[first + i]} * f64{w[i]};
      magnitude += std::abs(f64{p.x[first + i]} * f64{w[i]});
    }
  } else {
    const TypeTraits& traits = type_traits(type);
    for (u32 s = 0; s < c.k / 32; ++s) {
      const u32 strips = traits.block_elems / 32;
      const u8* block = &p.rows[j][r * row_bytes(type, c.k) + u64{s / strips} * traits.block_bytes];
      const Strip strip = strip_from_file(type, block, s % strips);
      const f64 d_x = f64{p.acts.scales[(first / 32) + s]};
      f64 part = 0.0, low = 0.0, halves = 0.0;
      for (u32 half = 0; half < 2; ++half) {
        f64 dot = 0.0;
        for (u32 e = half * 16; e < half * 16 + 16; ++e) {
          const f64 x = p.acts.q[first + s * 32 + e];
          dot += x * (strip.codes[e] - strip.zero);
          low += x * f64{strip.dmin} * strip.min[half];
        }
        part += dot * f64{strip.d} * strip.scale[half];
        halves += std::abs(dot * f64{strip.d} * strip.scale[half]);
      }
      want += (part - low) * d_x;
      // q8_0 is added up by halves.
      magnitude += ((type == kQ8 ? halves : std::abs(part)) + std::abs(low)) * d_x;
    }
  }
  f64 extra = 0.0;  // what the additions behind the product may be off
  if (c.with_bias) {
    want += f64{p.bias[j][r]};
    extra += std::abs(want);
  }
  if (c.store == Store::add) {
    want += f64{kCanary};
    extra += std::abs(want);
  }
  // As the header promises.
  const f64 roundings = type == kF16 ? c.k / 32.0 + 8 : c.k / 512.0 + 12;
  REQUIRE(std::abs(f64{got} - want) <= kEpsilonF32 * (roundings * magnitude + 2 * extra));
}

void check_against_oracle(const ProductCase& c, const ProductProblem& p, const Outputs& outs) {
  for (u64 j = 0; j < outs.size(); ++j) {
    const u64 stride = c.n_out[j] + kGap;
    for (u64 at = 0; at < outs[j].size(); ++at) {
      const u32 n = static_cast<u32>(at / stride), r = static_cast<u32>(at % stride);
      if (n < c.n_rows && r < c.n_out[j]) {
        check_element(c, p, j, n, r, outs[j][at]);
      } else {
        REQUIRE(outs[j][at] == kCanary);
      }
    }
  }
}

TEST_CASE("matvec agrees with the f64 oracle, and a row alone with the batch, on every GPU") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const ProductCase& c : kCases) {
      CAPTURE(c.name);
      const ProductProblem p = test::make_problem(c, random, test::Codes::random);
      const auto batch = run(gpu, c, p, c.n_rows, c.rows_max);
      check_against_oracle(c, p, batch);
      for (u32 bucket = 1; bucket <= c.rows_max; bucket *= 2) {
        const u32 n_rows = std::min(bucket, c.n_rows);
        const auto part = run(gpu, c, p, n_rows, bucket);
        for (u64 j = 0; j < part.size(); ++j) {
          const u64 used = n_rows * (c.n_out[j] + kGap);
          CHECK(std::memcmp(part[j].data(), batch[j].data(), used * sizeof(f32)) == 0);
        }
      }
    }
  }
}

TEST_CASE("codes at the ends of their range overflow nothing") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  test::each_extreme_problem(
      1, random, [](const test::Gpu& gpu, const ProductCase& c, const ProductProblem& p) {
        check_against_oracle(c, p, run(gpu, c, p, 1, 1));
      });
}

}  // namespace
}  // namespace tarn::kernels::matvec_test
