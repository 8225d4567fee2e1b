// Goal    frequencies, angles and rotation are what kernels/rope/rope.h says, for positions up to
//         2^24; a turn by p and one by D are one by p + D, a turn back brings back what was there,
//         and the product of two heads is of the distance between them alone.
// Method  long double oracles for the tables (the product of a 24-bit position and an f64 frequency
//         is off by at most 2^-40 there), an f64 oracle for the rotation; both pair orders, n_rot
//         below head_dim, tails, strides with canaries; all tables bit-equal to the generic one.
//         Turns in turn, under a bound of the tables' errors and the roundings (METHODS 14.1, A9).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::rope_test {
namespace {

constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();
constexpr f32 kCanary = -12345.0f;

TEST_CASE("rope_frequencies is within 1e-14 of the formula") {
  for (const f64 base : {1.5, 10000.0, 500000.0, 1000000.0, 8e7, 1e9}) {
    for (const u32 n_rot : {2u, 8u, 64u, 96u, 128u, 256u}) {
      for (const f64 scale : {1.0, 0.25}) {
        CAPTURE(base);
        CAPTURE(n_rot);
        std::vector<f64> inv_freq(n_rot / 2);
        rope_frequencies(base, scale, n_rot, nullptr, inv_freq.data());
        for (u32 i = 0; i < n_rot / 2; ++i) {
          const long double exponent = -2.0L * i / n_rot;
          const long double want = std::pow(static_cast<long double>(base), exponent) * scale;
          REQUIRE(std::abs(inv_freq[i] / want - 1.0L) < 1e-14L);
        }
      }
    }
  }
}

TEST_CASE("the factors of Llama 3.1 divide the frequencies pair by pair") {
  // Factors from the model's rule: 1 for short waves, 8 for long ones, smooth between.
  constexpr u32 kRot = 128;
  std::vector<f32> factors(kRot / 2);
  for (u32 i = 0; i < kRot / 2; ++i) {
    const f64 wave = 2 * std::numbers::pi * std::pow(500000.0, 2.0 * i / kRot);
    const f64 smooth = (8192.0 / wave - 1.0) / (4.0 - 1.0);
    factors[i] = wave < 8192.0 / 4 ? 1.0f
                 : wave > 8192.0   ? 8.0f
                                   : static_cast<f32>(1.0 / ((1.0 - smooth) / 8.0 + smooth));
  }
  CHECK(factors.front() == 1.0f);
  CHECK(factors.back() == 8.0f);
  std::vector<f64> plain(kRot / 2), scaled(kRot / 2);
  rope_frequencies(500000.0, 1.0, kRot, nullptr, plain.data());
  rope_frequencies(500000.0, 1.0, kRot, factors.data(), scaled.data());
  for (u32 i = 0; i < kRot / 2; ++i) {
    REQUIRE(std::abs(scaled[i] * f64{factors[i]} / plain[i] - 1.0) < 1e-15);
  }
}

TEST_CASE("rope_table is within 2^-24 + 2^-40 for positions up to 2^24") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kRot = 128;
  constexpr f64 kBound = 0x1p-24 + 0x1p-40;
  std::vector<u32> positions = {0, 1, 2, 3, 355, 4095, 4096, 131071, (1u << 24) - 1};
  for (u32 i = 0; i < 2000; ++i) positions.push_back(static_cast<u32>(random.below(1u << 24)));
  const u32 n_rows = static_cast<u32>(positions.size());
  for (const f64 base : {10000.0, 500000.0}) {
    std::vector<f64> inv_freq(kRot / 2);
    rope_frequencies(base, 1.0, kRot, nullptr, inv_freq.data());
    std::vector<f32> cos(u64{n_rows} * kRot / 2), sin(cos.size());
    rope_table({.positions = positions.data(),
                .n_rows = n_rows,
                .n_rot = kRot,
                .inv_freq = inv_freq.data(),
                .cos = cos.data(),
                .sin = sin.data()});
    for (u32 n = 0; n < n_rows; ++n) {
      for (u32 i = 0; i < kRot / 2; ++i) {
        const long double angle = static_cast<long double>(positions[n]) * inv_freq[i];
        const u64 at = u64{n} * kRot / 2 + i;
        REQUIRE(std::abs(cos[at] - std::cos(angle)) <= kBound);
        REQUIRE(std::abs(sin[at] - std::sin(angle)) <= kBound);
      }
    }
    CHECK(cos[0] == 1.0f);
    CHECK(sin[0] == 0.0f);
  }
}

struct Case {
  const char* name;
  u32 head_dim, n_rot, n_heads, n_rows, gap, misalign;
};

// clang-format off
constexpr Case kCases[] = {
    // name                     dim  rot heads rows gap off
    {"one pair",                  2,   2,   1,  1,  0,  0},
    {"the smallest head",         8,   8,   3,  2,  1,  1},
    {"pairs that fill no lane",  10,  10,   2,  3,  0,  3},
    {"one pair short of 8",      14,  14,   2,  1,  5,  0},
    {"15 pairs",                 30,  30,   2,  2,  0,  1},
    {"16 pairs",                 32,  32,   2,  2,  2,  0},
    {"17 pairs",                 34,  34,   3,  1,  0,  2},
    {"half of the head turns",  128,  64,   4,  2,  7,  0},
    {"a tail that stays",        80,  50,   2,  2,  0,  1},
    {"no pair turns",            16,   0,   2,  1,  0,  0},
    {"a model's head",          128, 128,   8,  3,  0,  0},
    {"the largest head",        256, 256,   2,  2,  3,  1},
};
// clang-format on

struct Data {
  std::vector<f32> x, cos, sin;
  u64 stride;
};

Data make_data(const Case& c, test::Random& random) {
  Data data;
  data.stride = u64{c.n_heads} * c.head_dim + c.gap;
  data.x.assign(data.stride * c.n_rows + c.misalign + 16, kCanary);
  data.cos.resize(u64{c.n_rows} * c.n_rot / 2 + c.misalign);
  data.sin.resize(data.cos.size());
  for (u32 n = 0; n < c.n_rows; ++n) {
    for (u32 i = 0; i < c.n_heads * c.head_dim; ++i) {
      data.x[n * data.stride + i + c.misalign] = random.normal();
    }
  }
  for (u64 i = 0; i < data.cos.size(); ++i) {
    const f64 angle = f64{random.uniform(-4.0f, 4.0f)};
    data.cos[i] = static_cast<f32>(std::cos(angle));
    data.sin[i] = static_cast<f32>(std::sin(angle));
  }
  return data;
}

std::vector<f32> run(const CpuTable& table, const Case& c, const Data& data, RopePairs pairs) {
  std::vector<f32> x = data.x;
  table.rope({.x = x.data() + c.misalign,
              .x_stride = data.stride,
              .cos = data.cos.data() + c.misalign,
              .sin = data.sin.data() + c.misalign,
              .n_rows = c.n_rows,
              .n_heads = c.n_heads,
              .head_dim = c.head_dim,
              .n_rot = c.n_rot,
              .pairs = pairs});
  return x;
}

void check_against_oracle(const Case& c, const Data& data, RopePairs pairs,
                          const std::vector<f32>& out) {
  std::vector<f64> want(data.x.begin(), data.x.end());
  std::vector<f64> bound(want.size(), 0.0);
  for (u32 n = 0; n < c.n_rows; ++n) {
    for (u32 h = 0; h < c.n_heads; ++h) {
      for (u32 i = 0; i < c.n_rot / 2; ++i) {
        const u64 head = c.misalign + n * data.stride + u64{h} * c.head_dim;
        const u64 at_a = head + (pairs == RopePairs::adjacent ? 2 * i : i);
        const u64 at_b = head + (pairs == RopePairs::adjacent ? 2 * i + 1 : i + c.n_rot / 2);
        const f64 a = f64{data.x[at_a]}, b = f64{data.x[at_b]};
        const u64 turn = u64{n} * c.n_rot / 2 + i + c.misalign;
        const f64 cos = f64{data.cos[turn]}, sin = f64{data.sin[turn]};
        want[at_a] = a * cos - b * sin;
        want[at_b] = a * sin + b * cos;
        bound[at_a] = bound[at_b] = kEpsilonF32 * (std::abs(a) + std::abs(b));
      }
    }
  }
  for (u64 i = 0; i < out.size(); ++i) REQUIRE(std::abs(f64{out[i]} - want[i]) <= bound[i]);
}

TEST_CASE("rope turns the right pairs, and with the same bits on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Data data = make_data(c, random);
    for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
      CAPTURE(static_cast<int>(pairs));
      const std::vector<f32> generic = run(cpu_tables().back(), c, data, pairs);
      for (const CpuTable& table : cpu_tables()) {
        if (!table.runs_here()) continue;
        CAPTURE(table.isa);
        const std::vector<f32> out = run(table, c, data, pairs);
        check_against_oracle(c, data, pairs, out);
        CHECK(std::memcmp(out.data(), generic.data(), out.size() * sizeof(f32)) == 0);
      }
    }
  }
}

// A head turned to a position, or back from it: sin(-a) = -sin(a).
struct Turning {
  const CpuTable& table;
  const std::vector<f64>& inv_freq;
  u32 head_dim, n_rot;
  RopePairs pairs;

  std::vector<f32> turned(std::vector<f32> x, u32 position, f32 sign = 1) const {
    std::vector<f32> cos(n_rot / 2), sin(n_rot / 2);
    rope_table({&position, 1, n_rot, inv_freq.data(), cos.data(), sin.data()});
    for (f32& value : sin) value *= sign;
    table.rope({x.data(), head_dim, cos.data(), sin.data(), 1, 1, head_dim, n_rot, pairs});
    return x;
  }
};

f64 product(const std::vector<f32>& a, const std::vector<f32>& b) {
  f64 sum = 0;
  for (u64 i = 0; i < a.size(); ++i) sum += f64{a[i]} * f64{b[i]};
  return sum;
}

// How far b is from a, as a multiple of a's length.
f64 distance(const std::vector<f32>& a, std::vector<f32> b) {
  for (u64 i = 0; i < a.size(); ++i) b[i] -= a[i];
  return std::sqrt(product(b, b) / product(a, a));
}

// An element of a turned pair is off by 2^-24 of |a| + |b| by the tables and by twice that of
// roundings, and |a| + |b| <= sqrt(2) of the pair's length; so the pair by 6 * 2^-24 of it. Three
// turns are compared at most.
constexpr f64 kTurnsBound = 18 * 0x1p-24;

void check_turns(const Turning& turning, test::Random& random) {
  constexpr u32 kFrom[] = {0, 1, 4095, 131071, (1u << 23) + 5};
  constexpr u32 kBy[] = {1, 511, 4097, 777, (1u << 23) - 7};
  std::vector<f32> q(turning.head_dim), k(turning.head_dim);
  for (f32& x : q) x = random.normal();
  for (f32& x : k) x = random.normal();
  const f64 lengths = std::sqrt(product(q, q) * product(k, k));
  for (u32 i = 0; i < std::size(kFrom); ++i) {
    const u32 p = kFrom[i], d = kBy[i];
    CAPTURE(p);
    const std::vector<f32> at_p = turning.turned(k, p), further = turning.turned(at_p, d);
    CHECK(distance(turning.turned(k, p + d), further) < kTurnsBound);
    CHECK(distance(at_p, turning.turned(further, d, -1)) < kTurnsBound);
    CHECK(distance(k, turning.turned(at_p, p, -1)) < kTurnsBound);
    const f64 apart_by_d = product(turning.turned(q, d), k);
    const f64 both_shifted = product(turning.turned(q, p + d), at_p);
    CHECK(std::abs(both_shifted - apart_by_d) < kTurnsBound * lengths);
  }
}

TEST_CASE("turns add up, a turn back brings back, and a product is of the distance") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 128;
  std::vector<f32> factors(kDim / 2, 8.0f);
  std::fill_n(factors.begin(), 24, 1.0f);
  struct Frequencies {
    f64 scale;
    const f32* factors;
  };
  for (const u32 n_rot : {kDim, kDim / 2, 2u}) {
    for (const Frequencies& f : {Frequencies{1, nullptr}, {0.25, nullptr}, {1, factors.data()}}) {
      std::vector<f64> inv_freq(n_rot / 2);
      rope_frequencies(500000.0, f.scale, n_rot, f.factors, inv_freq.data());
      for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
        CAPTURE(n_rot);
        CAPTURE(f.scale);
        CAPTURE(static_cast<int>(pairs));
        for (const CpuTable& table : cpu_tables()) {
          if (table.runs_here()) check_turns({table, inv_freq, kDim, n_rot, pairs}, random);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::rope_test
