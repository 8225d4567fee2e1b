// Goal    the choice by pairs of codes is the k best tokens by the softmax over tokens, summed over
//         the group, the lower place of equals; the same on every ISA and for every format.
// Method  weights a token in f64 from the definition: no token left out may beat a chosen one by
//         more than rounding, and among those with one pair of codes the first are chosen.
//         Every body against the portable one. Seeds printed.
#include "kernels/pq/pq_pairs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::pq_pairs_test {
namespace {

struct Case {
  u32 side, n_codes, n_tokens, n_heads, k;
  PqCodeFormat format = PqCodeFormat::bytes;
  f32 spread = 3.0f;  // of the tables' values
};

struct Made {
  explicit Made(const Case& c, test::Random& random)
      : lut(u64{2} * c.n_heads * c.side), counts(u64{c.side} * c.side), rows(2 * row_bytes(c)) {
    for (f32& value : lut) value = c.spread * random.normal();
    for (u32 t = 0; t < c.n_tokens; ++t) {
      const u8 c0 = static_cast<u8>(random.below(c.n_codes));
      // Most tokens have few pairs, so that equals are many.
      const u8 c1 = static_cast<u8>(random.below(random.below(2) == 0 ? 2 : c.n_codes));
      pq_code_put(c.format, rows.data(), t, c0);
      pq_code_put(c.format, rows.data() + row_bytes(c), t, c1);
      counts[u64{c0} * c.side + c1] += 1;
      pairs.push_back(u32{c0} * c.side + c1);
    }
  }
  static u64 row_bytes(const Case& c) { return pq_row_bytes(c.format, c.n_tokens); }

  std::vector<u32> choose(const CpuTable& table, const Case& c) {
    alignas(64) static u8 scratch[kPqPairScratchBytes];
    std::vector<u32> out(std::min(c.n_tokens, c.k));
    const u32 n = table.pq_pairs({.format = c.format,
                                  .codes = rows.data(),
                                  .codes_stride = row_bytes(c),
                                  .lut = lut.data(),
                                  .counts = counts.data(),
                                  .scratch = scratch,
                                  .out = out.data(),
                                  .n_tokens = c.n_tokens,
                                  .n_heads = c.n_heads,
                                  .side = c.side,
                                  .k = c.k,
                                  .scale = 0.5f});
    CHECK(n == out.size());
    return out;
  }

  // Returns the weights of the tokens of a pair, from the definition.
  std::vector<f64> weights(const Case& c) const {
    std::vector<f64> sums(counts.size());
    for (u32 h = 0; h < c.n_heads; ++h) {
      const f32* table = lut.data() + u64{2} * h * c.side;
      std::vector<f64> p(counts.size());
      f64 max = -1e300, z = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        p[i] = 0.5 * (f64{table[i / c.side]} + table[c.side + i % c.side]);
        if (counts[i] != 0) max = std::max(max, p[i]);
      }
      if (c.n_heads == 1) return p;
      for (size_t i = 0; i < p.size(); ++i) z += counts[i] * (p[i] = std::exp(p[i] - max));
      for (size_t i = 0; i < p.size(); ++i) sums[i] += p[i] / z;
    }
    return sums;
  }

  std::vector<f32> lut;
  std::vector<u32> counts;
  std::vector<u8> rows;
  std::vector<u32> pairs;  // of each token
};

constexpr Case kCases[] = {
    {64, 64, 1000, 4, 100},
    {64, 64, 5000, 8, 1},
    {64, 64, 4097, 1, 300},
    {64, 3, 777, 4, 500},
    {16, 2, 64, 2, 63},
    {16, 16, 3000, 4, 2999},
    {32, 32, 2048, 5, 2048},
    {64, 64, 50, 4, 64},
    {64, 64, 100, 4, 0},
    {64, 64, 33, 4, 7},
    {64, 60, 9000, 4, 1000, PqCodeFormat::packed6},
    {16, 16, 1234, 4, 99, PqCodeFormat::packed4},
    {64, 64, 6000, 4, 5000, PqCodeFormat::bytes, 200.0f},  // most weights are 0
    {64, 64, 6000, 4, 500, PqCodeFormat::bytes, 0.0f},     // all are equal
};

TEST_CASE("the best by weight, the first of equals, on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Case& c : kCases) {
    CAPTURE(c.n_tokens);
    CAPTURE(c.k);
    Made made(c, random);
    const std::vector<u32> want = made.choose(cpu_tables().back(), c);
    CHECK(std::is_sorted(want.begin(), want.end()));
    const std::vector<f64> weights = made.weights(c);
    std::vector<bool> chosen(c.n_tokens);
    for (const u32 t : want) chosen[t] = true;
    f64 least = 1e300, most = -1e300;
    std::vector<bool> left_out(made.counts.size());
    for (u32 t = 0; t < c.n_tokens; ++t) {
      const f64 weight = weights[made.pairs[t]];
      (chosen[t] ? least : most) = chosen[t] ? std::min(least, weight) : std::max(most, weight);
      // Once a token of a pair is left out, so are the later ones.
      if (chosen[t]) REQUIRE_FALSE(left_out[made.pairs[t]]);
      if (!chosen[t]) left_out[made.pairs[t]] = true;
    }
    if (!want.empty() && want.size() < c.n_tokens) {
      CHECK(least >= most - 1e-4 * std::abs(most) - 1e-30);
    }
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      CHECK(made.choose(table, c) == want);
    }
  }
}

TEST_CASE("a softmax a head comes before the sum over the group") {
  // METHODS: logits (10, 9, 0) and (0, 0.5, 3) choose {0, 2}; their sums would choose {0, 1}.
  const f32 logits[2][3] = {{10.0f, 9.0f, 0.0f}, {0.0f, 0.5f, 3.0f}};
  const Case c = {16, 3, 3, 2, 2};
  test::Random random(1);
  Made made(c, random);
  std::fill(made.lut.begin(), made.lut.end(), 0.0f);
  std::fill(made.counts.begin(), made.counts.end(), 0u);
  for (u32 t = 0; t < 3; ++t) {
    for (u32 h = 0; h < 2; ++h) made.lut[u64{32} * h + t] = 2 * logits[h][t];  // scale is 0.5
    pq_code_put(c.format, made.rows.data(), t, static_cast<u8>(t));
    pq_code_put(c.format, made.rows.data() + Made::row_bytes(c), t, 0);
    made.counts[16 * t] = 1;
  }
  for (const CpuTable& table : cpu_tables()) {
    if (table.runs_here()) CHECK((made.choose(table, c) == std::vector<u32>{0, 2}));
  }
}

}  // namespace
}  // namespace tarn::kernels::pq_pairs_test
