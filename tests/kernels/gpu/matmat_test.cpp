// Goal    on every GPU the product of a prompt's rows has matvec's bits, whatever the rows beside.
// Method  matvec on 8 rows at a time is the oracle (matvec_test.cpp holds it to f64); sizes around
//         a CTA's 32 rows and outputs, a tile, a window of 8 chunks and the 32 classes of chunks;
//         types mixed in a launch; bias, sums into the output; canaries in unused rows and gaps.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/kernels/gpu/products.h"

namespace tarn::kernels::matmat_test {
namespace {

using test::kCanary;
using test::kGap;
using test::ProductCase;
using test::ProductProblem;

constexpr TensorType kQ8 = TensorType::q8_0, kQ4K = TensorType::q4_k, kQ6K = TensorType::q6_k;

// clang-format off
const ProductCase kCases[] = {
    // name                                 k rows rows_max types           rows of each    bias   store
    {"q8_0: half a window",                64,  1,  9, {kQ8},              {3},            false, Store::set},
    {"q8_0: a window and a half",         192, 33, 40, {kQ8},              {17},           true,  Store::add},
    {"q8_0: two turns of all classes",   1088,  9,  9, {kQ8},              {33},           false, Store::set},
    {"q4_k: one block",                   256, 31, 32, {kQ4K},             {1},            false, Store::set},
    {"q4_k: a block short of the classes",768,  9, 16, {kQ4K},             {16},           true,  Store::set},
    {"q4_k: two turns and a block",      2304, 32, 32, {kQ4K},             {32},           false, Store::add},
    {"q4_k: over a CTA both ways",        512, 65, 65, {kQ4K},             {49},           true,  Store::set},
    {"q6_k: one block",                   256, 10, 10, {kQ6K},             {2},            false, Store::set},
    {"q6_k: a turn and a block",         1280, 34, 64, {kQ6K},             {31},           true,  Store::add},
    {"q, k and v of three types",         256, 12, 16, {kQ4K, kQ8, kQ6K},  {40, 5, 33},    true,  Store::set},
    {"gate and up",                       512, 16, 16, {kQ4K, kQ4K},       {48, 48},       false, Store::set},
    {"no row in use",                     256,  0, 40, {kQ4K},             {4},            false, Store::set},
};
// clang-format on

std::vector<std::vector<f32>> by_matvec(const test::Gpu& gpu, const ProductCase& c,
                                        const ProductProblem& p) {
  std::vector<std::vector<f32>> all;
  for (const u32 n_out : c.n_out) {
    all.emplace_back(u64{c.rows_max} * (n_out + kGap), kCanary);
  }
  for (u32 begin = 0; begin < c.n_rows; begin += kGpuMatvecRowsMax) {
    const u32 n = std::min(kGpuMatvecRowsMax, c.n_rows - begin);
    const auto part = test::run_product(gpu, gpu.table->matvec, c, p,
                                        {.row_begin = begin,
                                         .n_rows = n,
                                         .rows_max = 8,
                                         .rows_read = std::min(8u, c.rows_max - begin)});
    for (u64 j = 0; j < all.size(); ++j) {
      const u64 stride = c.n_out[j] + kGap;
      std::copy_n(part[j].begin(), n * stride, &all[j][begin * stride]);
    }
  }
  return all;
}

TEST_CASE("a prompt's product has matvec's bits, on every GPU") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (ProductCase c : kCases) {
      CAPTURE(c.name);
      for (u64 j = 0; j < c.types.size(); ++j) REQUIRE(gpu_matmat_takes(c.types[j], c.k));
      const u32 rows_max = c.rows_max;
      c.rows_max = (rows_max + 7) / 8 * 8;  // matvec reads whole buckets
      const ProductProblem p = test::make_problem(c, random, test::Codes::random);
      const auto want = by_matvec(gpu, c, p);
      const auto got = test::run_product(
          gpu, gpu.table->matmat, c, p,
          {.row_begin = 0, .n_rows = c.n_rows, .rows_max = rows_max, .rows_read = c.n_rows});
      for (u64 j = 0; j < want.size(); ++j) {
        CAPTURE(j);
        REQUIRE(got[j].size() == rows_max * u64{c.n_out[j] + kGap});
        CHECK(std::memcmp(got[j].data(), want[j].data(), got[j].size() * sizeof(f32)) == 0);
      }
    }
  }
}

TEST_CASE("codes at the ends of their range give matvec's bits too") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  test::each_extreme_problem(
      8, random, [](const test::Gpu& gpu, const ProductCase& c, const ProductProblem& p) {
        const auto got = test::run_product(gpu, gpu.table->matmat, c, p,
                                           {.row_begin = 0, .n_rows = 8, .rows_max = 8});
        CHECK(std::memcmp(got[0].data(), by_matvec(gpu, c, p)[0].data(),
                          got[0].size() * sizeof(f32)) == 0);
      });
}

}  // namespace
}  // namespace tarn::kernels::matmat_test
