// Goal    every ISA computes the products of matmul.h within its bound, and all of them, with any
//         number of activation rows and any range of tiles, give the same bits.
// Method  an f64 oracle on dequantised operands; generic as the reference for bits; codes and
//         activations at the ends of their ranges, where narrow integers overflow; canaries.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "tests/kernels/quant/random_rows.h"
#include "tests/kernels/quant/runnable_tables.h"
#include "tests/support/seed.h"

namespace tarn::kernels::matmul_test {
namespace {

using test::Codes;
constexpr f32 kCanary = -12345.0f;
constexpr f64 kEpsilon = std::numeric_limits<f32>::epsilon();

enum class Acts { normal, all_positive, all_negative };

// Weights and activations of one product, in every form that the oracle and the kernels want.
struct Problem {
  TensorType type;
  u64 n_out;
  u32 k, n_acts;
  std::vector<u8> rows;
  test::AlignedBytes tiled;
  std::vector<f32> x, scales, bias;
  std::vector<i8> q;
  std::vector<i32> sums;
  u64 x_stride;
};

Problem make_problem(tarn::test::Random& random, TensorType type, u64 n_out, u32 k, u32 n_acts,
                     Codes codes = Codes::random, Acts acts = Acts::normal) {
  Problem p{.type = type,
            .n_out = n_out,
            .k = k,
            .n_acts = n_acts,
            .rows = {},
            .tiled = {},
            .x = {},
            .scales = {},
            .bias = {},
            .q = {},
            .sums = {},
            .x_stride = k + 3u};
  p.rows = test::random_rows(random, type, n_out, k, codes);
  p.tiled = test::tile_matrix(tile_rows_generic, type, p.rows, n_out, k);
  p.x.resize(n_acts * p.x_stride);
  for (f32& x : p.x) {
    x = acts == Acts::normal ? random.normal() : acts == Acts::all_positive ? 1.0f : -1.0f;
  }
  p.bias.resize(n_out);
  for (f32& bias : p.bias) bias = random.normal();
  if (!wants_quantized_activations(type)) return p;
  p.q.resize(u64{n_acts} * k);
  p.scales.resize(p.q.size() / 32);
  p.sums.resize(p.q.size() / 16);
  quantize_activations_generic({.x = p.x.data(),
                                .x_stride = p.x_stride,
                                .q = p.q.data(),
                                .scales = p.scales.data(),
                                .sums = p.sums.data(),
                                .n_rows = n_acts,
                                .k = k});
  return p;
}

struct Call {
  u64 tile_begin, tile_end;
  u32 act_begin, n_acts;
  bool with_bias;
};

// [call.n_acts, n_out + 5], canaries where nothing was written.
std::vector<f32> run(MatmulFn matmul, const Problem& p, const Call& call) {
  const u64 stride = p.n_out + 5;
  std::vector<f32> out(call.n_acts * stride, kCanary);
  const u64 first = call.act_begin;
  const bool quantized = wants_quantized_activations(p.type);
  matmul({.type = p.type,
          .weights = p.tiled.get(),
          .n_out = p.n_out,
          .k = p.k,
          .tile_begin = call.tile_begin,
          .tile_end = call.tile_end,
          .n_acts = call.n_acts,
          .x = quantized ? nullptr : p.x.data() + first * p.x_stride,
          .x_stride = p.x_stride,
          .q = p.q.data() + first * (quantized ? p.k : 0),
          .scales = p.scales.data() + first * (quantized ? p.k / 32 : 0),
          .sums = p.sums.data() + first * (quantized ? p.k / 16 : 0),
          .bias = call.with_bias ? p.bias.data() : nullptr,
          .out = out.data(),
          .out_stride = stride});
  return out;
}

Call whole(const Problem& p) { return {0, (p.n_out + 15) / 16, 0, p.n_acts, false}; }

bool same_bits(const f32* a, const f32* b, u64 n) {
  return std::memcmp(a, b, n * sizeof(f32)) == 0;
}

struct Oracle {
  f64 value, magnitude;
};

// The exact product of the dequantised operands. `magnitude` is the sum that the bound speaks of:
// for the types with a minimum both of a term's parts count, since they may cancel.
Oracle oracle(const Problem& p, u64 act, u64 row) {
  Oracle sum{0, 0};
  const u8* bytes = p.rows.data() + row * row_bytes(p.type, p.k);
  if (!wants_quantized_activations(p.type)) {
    std::vector<f32> w(p.k);
    dequantize_row(p.type, bytes, p.k, w.data());
    for (u32 i = 0; i < p.k; ++i) {
      const f64 term = f64{w[i]} * p.x[act * p.x_stride + i];
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
    return sum;
  }
  const TypeTraits& traits = type_traits(p.type);
  for (u32 k = 0; k < p.k; k += 32) {
    const u8* block = bytes + k / traits.block_elems * traits.block_bytes;
    const Strip strip = strip_from_file(p.type, block, k % traits.block_elems / 32);
    f64 dot = 0, low = 0;
    for (u32 e = 0; e < 32; ++e) {
      const f64 q = p.q[act * p.k + k + e];
      dot += f64{strip.d} * strip.scale[e / 16] * (strip.codes[e] - strip.zero) * q;
      low += f64{strip.dmin} * strip.min[e / 16] * q;
    }
    const f64 d_x = p.scales[(act * p.k + k) / 32];
    sum.value += (dot - low) * d_x;
    sum.magnitude += (std::abs(dot) + std::abs(low)) * d_x;
  }
  return sum;
}

struct Case {
  const char* name;
  u32 n_out, blocks, n_acts;
  Codes codes;
  Acts acts;
};
constexpr Case kCases[] = {
    {"one row of one block", 1, 1, 1, Codes::random, Acts::normal},
    {"a tile and a bit", 21, 3, 2, Codes::random, Acts::normal},
    {"prefill", 70, 2, 33, Codes::random, Acts::normal},
    {"blocks of 32 beyond a multiple of 256", 17, 18, 2, Codes::random, Acts::normal},
    {"largest weights times 127", 17, 2, 5, Codes::largest, Acts::all_positive},
    {"largest weights times -127", 17, 2, 9, Codes::largest, Acts::all_negative},
    {"smallest weights times 127", 17, 2, 9, Codes::smallest, Acts::all_positive},
    {"smallest weights times -127", 17, 2, 5, Codes::smallest, Acts::all_negative},
};

TEST_CASE("products agree with the f64 oracle and the generic bits on every ISA") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  for (const TypeTraits& traits : kTypeTraits) {
    for (const Case& c : kCases) {
      const u32 k = traits.block_elems == 1 ? c.blocks * 172 : c.blocks * traits.block_elems;
      const Problem p = make_problem(random, traits.type, c.n_out, k, c.n_acts, c.codes, c.acts);
      const std::vector<f32> want = run(matmul_generic, p, whole(p));
      for (const CpuTable& table : test::runnable_tables()) {
        CAPTURE(table.isa);
        CAPTURE(traits.name);
        CAPTURE(c.name);
        CAPTURE(random.seed());
        const std::vector<f32> got = run(table.matmul, p, whole(p));
        const f64 roundings = traits.block_elems == 1 ? k / 4 + 3 : k / 32 + 4;
        for (u64 n = 0; n < c.n_acts; ++n) {
          for (u64 r = 0; r < c.n_out; ++r) {
            const Oracle exact = oracle(p, n, r);
            const f64 error = std::abs(got[n * (c.n_out + 5) + r] - exact.value);
            REQUIRE(error <= roundings * kEpsilon * exact.magnitude);
          }
        }
        REQUIRE(same_bits(got.data(), want.data(), want.size()));
      }
    }
  }
}

// The scales that a block can have at its ends: zeros, subnormal, largest, infinite, NaN.
constexpr u16 kOddHalves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400,
                              0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x3C00};
constexpr u32 kOdd = std::size(kOddHalves), kOddRows = 256;

// Row r's blocks get scale r, of all exponents, or of all pairs of the halves above.
template <class Type>
void put_odd_scales(u32 row, u8* block) {
  u8* d = block + Type::kHead[0].at;
  if constexpr (Type::kHead[0].n_bytes == 1) {
    *d = static_cast<u8>(row);
  } else {
    std::memcpy(d, &kOddHalves[row % kOdd], sizeof(u16));
  }
  if constexpr (HasMinimum<Type>) {
    std::memcpy(block + Type::kHead[1].at, &kOddHalves[row / kOdd % kOdd], sizeof(u16));
  }
}

bool same_or_both_nan(f32 a, f32 b) {
  return same_bits(&a, &b, 1) || (std::isnan(a) && std::isnan(b));
}

TEST_CASE("scales of every kind, subnormal and infinite ones too, give the same on every ISA") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const TypeTraits& traits : kTypeTraits) {
    if (traits.block_elems == 1) continue;
    CAPTURE(traits.name);
    Problem p = make_problem(random, traits.type, kOddRows, traits.block_elems, 3);
    for (u32 row = 0; row < kOddRows; ++row) {
      QuantTypes::visit(traits.type, [&]<class Type>(Type) {
        put_odd_scales<Type>(row, p.rows.data() + row * traits.block_bytes);
      });
    }
    p.tiled = test::tile_matrix(tile_rows_generic, p.type, p.rows, p.n_out, p.k);
    const std::vector<f32> want = run(matmul_generic, p, whole(p));
    for (const CpuTable& table : test::runnable_tables()) {
      CAPTURE(table.isa);
      for (const u32 n_acts : {1u, 3u}) {
        Call call = whole(p);
        call.n_acts = n_acts;
        const std::vector<f32> got = run(table.matmul, p, call);
        for (u64 i = 0; i < got.size(); ++i) {
          CAPTURE(i);
          REQUIRE(same_or_both_nan(got[i], want[i]));
        }
      }
    }
  }
}

TEST_CASE("one activation row and many give the same bits") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  for (const TypeTraits& traits : kTypeTraits) {
    const u32 k = traits.block_elems == 1 ? 93 : 2 * traits.block_elems;
    const Problem p = make_problem(random, traits.type, 85, k, 512);
    const std::vector<f32> want = run(matmul_generic, p, whole(p));
    const u64 stride = p.n_out + 5;
    for (const CpuTable& table : test::runnable_tables()) {
      for (u32 n_acts : {1u,  2u,  3u,  4u,  5u,  6u,  7u,  8u,  9u,  10u,  11u,
                         12u, 13u, 14u, 15u, 16u, 17u, 31u, 64u, 65u, 127u, 512u}) {
        CAPTURE(table.isa);
        CAPTURE(traits.name);
        CAPTURE(n_acts);
        Call call = whole(p);
        call.n_acts = n_acts;
        call.act_begin = static_cast<u32>(random.below(512 - n_acts + 1));
        const std::vector<f32> got = run(table.matmul, p, call);
        REQUIRE(same_bits(got.data(), want.data() + call.act_begin * stride, n_acts * stride));
      }
    }
  }
}

TEST_CASE("a range of tiles writes its columns and nothing else; bias is added once") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  constexpr u64 kOut = 16 * 11 + 3;
  for (const TypeTraits& traits : kTypeTraits) {
    const u32 k = traits.block_elems == 1 ? 12 : 512;
    const Problem p = make_problem(random, traits.type, kOut, k, 21);
    std::vector<f32> want = run(matmul_generic, p, whole(p));
    for (u64 n = 0; n < p.n_acts; ++n) {
      for (u64 r = 0; r < kOut; ++r) want[n * (kOut + 5) + r] += p.bias[r];
    }
    for (const CpuTable& table : test::runnable_tables()) {
      for (u32 round = 0; round < 24; ++round) {
        CAPTURE(table.isa);
        CAPTURE(traits.name);
        CAPTURE(random.seed());
        Call call = whole(p);
        call.with_bias = true;
        call.tile_begin = random.below(12);
        call.tile_end = call.tile_begin + random.below(13 - call.tile_begin);
        call.n_acts = 1 + static_cast<u32>(random.below(p.n_acts));
        const std::vector<f32> got = run(table.matmul, p, call);
        for (u64 n = 0; n < call.n_acts; ++n) {
          for (u64 r = 0; r < kOut + 5; ++r) {
            const bool written =
                r >= call.tile_begin * 16 && r < std::min(kOut, call.tile_end * 16);
            const u64 at = n * (kOut + 5) + r;
            const f32 expected = written ? want[at] : kCanary;
            REQUIRE(same_bits(&got[at], &expected, 1));
          }
        }
      }
    }
  }
}

TEST_CASE("an activation that is not finite makes its own row's results NaN, and no other's") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  for (const TypeTraits& traits : kTypeTraits) {
    const Problem clean = make_problem(random, traits.type, 19, 512, 6);
    Problem p = make_problem(random, traits.type, 19, 512, 6);
    p.rows = clean.rows;
    std::memcpy(p.tiled.get(), clean.tiled.get(), tiled_bytes(traits.type, 19, 512));
    p.x = clean.x;
    p.x[2 * p.x_stride + 40] = std::numeric_limits<f32>::quiet_NaN();
    if (wants_quantized_activations(traits.type)) {
      quantize_activations_generic({.x = p.x.data(),
                                    .x_stride = p.x_stride,
                                    .q = p.q.data(),
                                    .scales = p.scales.data(),
                                    .sums = p.sums.data(),
                                    .n_rows = 6,
                                    .k = 512});
    }
    const std::vector<f32> want = run(matmul_generic, clean, whole(clean));
    for (const CpuTable& table : test::runnable_tables()) {
      CAPTURE(table.isa);
      CAPTURE(traits.name);
      const std::vector<f32> got = run(table.matmul, p, whole(p));
      for (u64 n = 0; n < 6; ++n) {
        for (u64 r = 0; r < 19; ++r) {
          if (n == 2) {
            REQUIRE(std::isnan(got[n * 24 + r]));
          } else {
            REQUIRE(same_bits(&got[n * 24 + r], &want[n * 24 + r], 1));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::matmul_test
