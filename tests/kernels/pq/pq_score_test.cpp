// Goal    look-up tables, scores and group weights are what pq_score.h says, in every code format,
//         with the same bits on every ISA.
// Method  hand-computed numbers; f64 oracles from the formulas with the header's bounds; token
//         counts around lanes, blocks and tiles; unaligned starts; canaries; slices against one
//         call; and codes put and read back one by one in rows of random neighbours.
#include "kernels/pq/pq_score.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::pq_score_test {
namespace {

constexpr f32 kCanary = -12345.0f;
constexpr f64 kEpsilon = std::numeric_limits<f32>::epsilon();
constexpr PqCodeFormat kFormats[] = {PqCodeFormat::bytes, PqCodeFormat::packed4,
                                     PqCodeFormat::packed6};
constexpr u32 kTokens[] = {0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 1000, 1024, 1025, 3000};

struct Shape {
  u32 n_heads, n_subspaces, dims, n_centroids;
};
constexpr Shape kShapes[] = {{1, 1, 8, 2},    {2, 2, 3, 16},   {4, 2, 64, 64}, {5, 3, 7, 32},
                             {4, 4, 32, 256}, {1, 16, 8, 128}, {8, 2, 16, 64}};

bool same_bits(const std::vector<f32>& a, const std::vector<f32>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(f32)) == 0;
}

TEST_CASE("codes to scores: the worked example") {
  // d = 4, two sub-spaces, two centroids: (1,0), (0,1) and (2,0), (0,3); q = (1, 2, 3, -1).
  std::vector<f32> codebook(2 * 2 * 16);
  codebook[0] = 1.0f, codebook[16 + 1] = 1.0f;
  codebook[32] = 2.0f, codebook[48 + 1] = 3.0f;
  const std::vector<f32> q = {1, 2, 3, -1};
  std::vector<u8> codes(128);
  codes[2] = codes[3] = 1;
  codes[64 + 1] = codes[64 + 3] = 1;
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    std::vector<f32> lut(32), scores(4);
    table.pq_lut({q.data(), 4, codebook.data(), lut.data(), 1, 2, 2, 16});
    CHECK(lut[0] == 1.0f);
    CHECK(lut[1] == 2.0f);
    CHECK(lut[16] == 6.0f);
    CHECK(lut[17] == -3.0f);
    table.pq_score(
        {PqCodeFormat::bytes, codes.data(), 64, lut.data(), scores.data(), 4, 4, 1, 2, 16, 0.5f});
    CHECK(scores == std::vector<f32>{3.5f, -1.0f, 4.0f, -0.5f});
  }
}

TEST_CASE("the group is ranked by the sum of softmaxed scores") {
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    std::vector<f32> scores = {10, 9, 0, 0, 0.5f, 3}, weights(3);
    table.pq_weigh({scores.data(), 3, weights.data(), 3, 2});
    CHECK(std::abs(weights[0] - 0.775f) < 5e-4f);
    CHECK(std::abs(weights[1] - 0.341f) < 5e-4f);
    CHECK(std::abs(weights[2] - 0.884f) < 5e-4f);
  }
}

TEST_CASE("lut agrees with the f64 oracle, alike on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Shape& s : kShapes) {
    CAPTURE(s.n_heads);
    CAPTURE(s.n_centroids);
    const u32 n_padded = pq_padded(s.n_centroids);
    const u64 stride = u64{s.n_subspaces} * s.dims + 3;
    std::vector<f32> q(s.n_heads * stride), codebook(u64{s.n_subspaces} * s.dims * n_padded);
    for (f32& x : q) x = random.normal();
    for (f32& x : codebook) x = random.normal();
    std::vector<f32> want;
    for (u64 i = cpu_tables().size(); i-- > 0;) {
      const CpuTable& table = cpu_tables()[i];
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      std::vector<f32> lut(u64{s.n_heads} * s.n_subspaces * n_padded + 1, kCanary);
      table.pq_lut({.q = q.data(),
                    .q_stride = stride,
                    .codebook = codebook.data(),
                    .lut = lut.data(),
                    .n_heads = s.n_heads,
                    .n_subspaces = s.n_subspaces,
                    .dims = s.dims,
                    .n_padded = n_padded});
      REQUIRE(lut.back() == kCanary);
      if (want.empty()) want = lut;
      REQUIRE(same_bits(lut, want));
    }
    for (u32 h = 0; h < s.n_heads; ++h) {
      for (u32 m = 0; m < s.n_subspaces; ++m) {
        for (u32 c = 0; c < n_padded; ++c) {
          f64 sum = 0.0, magnitude = 0.0;
          for (u32 i = 0; i < s.dims; ++i) {
            const f64 product = f64{q[h * stride + u64{m} * s.dims + i]} *
                                f64{codebook[(u64{m} * s.dims + i) * n_padded + c]};
            sum += product;
            magnitude += std::abs(product);
          }
          const f64 got = want[(u64{h} * s.n_subspaces + m) * n_padded + c];
          REQUIRE(std::abs(got - sum) <= s.dims * kEpsilon * magnitude);
        }
      }
    }
  }
}

struct Scored {
  std::vector<u8> plain;  // [n_subspaces, n_tokens]
  std::vector<f32> lut;
  u32 n_tokens;
};

std::vector<f32> score(const CpuTable& table, const Shape& s, const Scored& in, PqCodeFormat format,
                       u32 slice_tokens) {
  const u64 row_bytes = pq_row_bytes(format, in.n_tokens);
  std::vector<u8> codes(s.n_subspaces * row_bytes + 1, 0xff);
  for (u32 m = 0; m < s.n_subspaces; ++m) {
    for (u32 t = 0; t < in.n_tokens; ++t) {
      pq_code_put(format, codes.data() + m * row_bytes, t, in.plain[u64{m} * in.n_tokens + t]);
    }
  }
  const u64 stride = in.n_tokens + 3;
  std::vector<f32> scores(s.n_heads * stride, kCanary);
  for (u32 begin = 0; begin < in.n_tokens; begin += slice_tokens) {
    table.pq_score({.format = format,
                    .codes = codes.data() + pq_row_bytes(format, begin),
                    .codes_stride = row_bytes,
                    .lut = in.lut.data(),
                    .scores = scores.data() + begin,
                    .scores_stride = stride,
                    .n_tokens = std::min(slice_tokens, in.n_tokens - begin),
                    .n_heads = s.n_heads,
                    .n_subspaces = s.n_subspaces,
                    .n_padded = pq_padded(s.n_centroids),
                    .scale = 0.125f});
  }
  return scores;
}

TEST_CASE("score agrees with the f64 oracle, alike on every ISA, in every format and slice") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Shape& s : kShapes) {
    const u32 n_padded = pq_padded(s.n_centroids);
    for (const u32 n : kTokens) {
      CAPTURE(s.n_centroids);
      CAPTURE(n);
      Scored in{std::vector<u8>(u64{s.n_subspaces} * n),
                std::vector<f32>(u64{s.n_heads} * s.n_subspaces * n_padded), n};
      for (u8& code : in.plain) code = static_cast<u8>(random.below(s.n_centroids));
      for (f32& entry : in.lut) entry = random.uniform(-40.0f, 40.0f);
      const std::vector<f32> want = score(cpu_tables().back(), s, in, PqCodeFormat::bytes, n + 1);
      for (u32 h = 0; h < s.n_heads; ++h) {
        for (u32 t = 0; t < n + 3; ++t) {
          const f64 got = want[h * u64{n + 3} + t];
          if (t >= n) {
            REQUIRE(got == kCanary);
            continue;
          }
          f64 sum = 0.0, magnitude = 0.0;
          for (u32 m = 0; m < s.n_subspaces; ++m) {
            const f64 entry =
                in.lut[(u64{h} * s.n_subspaces + m) * n_padded + in.plain[u64{m} * n + t]];
            sum += entry / 8;
            magnitude += std::abs(entry) / 8;
          }
          REQUIRE(std::abs(got - sum) <= (s.n_subspaces + 1) * kEpsilon * magnitude);
        }
      }
      for (const CpuTable& table : cpu_tables()) {
        if (!table.runs_here()) continue;
        CAPTURE(table.isa);
        for (const PqCodeFormat format : kFormats) {
          if (s.n_centroids > 1u << pq_bits_max(format)) continue;
          CAPTURE(static_cast<u32>(format));
          for (const u32 slice : {64u, 640u, 4096u}) {
            REQUIRE(same_bits(score(table, s, in, format, slice), want));
          }
        }
      }
    }
  }
}

TEST_CASE("weigh agrees with the f64 oracle, alike on every ISA") {
  constexpr f32 kExpZero = 87.69f;  // exp(-87.69) is just below 2^-126.5
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u32 n_heads : {1u, 2u, 4u, 7u}) {
    for (const u32 n : kTokens) {
      CAPTURE(n_heads);
      CAPTURE(n);
      const u64 stride = n + 1;
      std::vector<f32> scores(n_heads * stride);
      for (f32& x : scores) x = random.normal() * 12.0f;
      // Where exp becomes 0, in all heads at once.
      for (u32 h = 0; n > 1 && h < n_heads; ++h) {
        f32* of_head = scores.data() + h * stride;
        of_head[0] = 60.0f;
        of_head[1] = 60.0f - kExpZero;
      }
      std::vector<f32> want;
      for (u64 i = cpu_tables().size(); i-- > 0;) {
        const CpuTable& table = cpu_tables()[i];
        if (!table.runs_here()) continue;
        CAPTURE(table.isa);
        std::vector<f32> p = scores, weights(n + 1, kCanary);
        table.pq_weigh({p.data(), stride, weights.data(), n, n_heads});
        REQUIRE(weights.back() == kCanary);
        for (u32 h = 0; h < n_heads; ++h) {
          REQUIRE(p[h * stride + n] == scores[h * stride + n]);
        }
        if (want.empty()) want = weights;
        REQUIRE(same_bits(weights, want));
      }
      std::vector<f64> sums(n);
      for (u32 h = 0; h < n_heads; ++h) {
        const f32* s = scores.data() + h * stride;
        f64 max = -1e30, z = 0.0;
        for (u32 t = 0; t < n; ++t) max = std::max(max, f64{s[t]});
        for (u32 t = 0; t < n; ++t) z += std::exp(f64{s[t]} - max);
        for (u32 t = 0; t < n; ++t) sums[t] += std::exp(f64{s[t]} - max) / z;
      }
      const f64 relative = (57.0 + n / 16.0 + n_heads) * kEpsilon;
      for (u32 t = 0; t < n; ++t) {
        REQUIRE(std::abs(f64{want[t]} - sums[t]) <= relative * sums[t] + n_heads * 0x1p-126);
      }
    }
  }
}

TEST_CASE("a NaN score makes the group's weights NaN on every ISA") {
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    std::vector<f32> scores(40, 1.0f), weights(20);
    scores[23] = std::numeric_limits<f32>::quiet_NaN();
    table.pq_weigh({scores.data(), 20, weights.data(), 20, 2});
    CHECK(std::all_of(weights.begin(), weights.end(), [](f32 w) { return std::isnan(w); }));
  }
}

TEST_CASE("codes are put and read back one by one") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const PqCodeFormat format : kFormats) {
    CAPTURE(static_cast<u32>(format));
    constexpr u32 kN = 200;
    std::vector<u8> row(pq_row_bytes(format, kN)), want(kN);
    CHECK(row.size() == 4 * pq_block_bytes(format));
    for (u8& byte : row) byte = static_cast<u8>(random.next());
    for (u32 t = 0; t < kN; ++t) want[t] = pq_code_get(format, row.data(), t);
    for (u32 i = 0; i < 1000; ++i) {
      const u64 t = random.below(kN);
      want[t] = static_cast<u8>(random.below(u64{1} << pq_bits_max(format)));
      pq_code_put(format, row.data(), t, want[t]);
      const u64 other = random.below(kN);
      REQUIRE(pq_code_get(format, row.data(), other) == want[other]);
    }
    for (u32 t = 0; t < kN; ++t) REQUIRE(pq_code_get(format, row.data(), t) == want[t]);
  }
}

}  // namespace
}  // namespace tarn::kernels::pq_score_test
