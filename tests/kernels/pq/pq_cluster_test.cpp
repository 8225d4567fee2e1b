// Goal    K-Means steps are what pq_cluster.h says: assignment to the nearest centroid within its
//         bound, sums that no order and no slicing changes, and together the Lloyd iteration of
//         METHODS; the same bits on every ISA.
// Method  f64 oracles from the formulas; sizes around the lanes; unaligned starts; canaries; rows
//         with NaN and infinities; slices of 1, 7 and all rows in both directions; and a Lloyd in
//         f64 from the same start, whose labels must be ours but for distances that are equal to
//         1e-5.
#include "kernels/pq/pq_cluster.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "kernels/common/half.h"
#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::pq_cluster_test {
namespace {

constexpr f32 kInf = std::numeric_limits<f32>::infinity();
constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
constexpr u8 kCanary = 0xa5;

struct Case {
  const char* name;
  u32 n_rows, dims, n_centroids, misalign;
};
// clang-format off
constexpr Case kCases[] = {
    // name                          rows dims  cent misalign
    {"no row at all",                   0,   8,   16,  0},
    {"two centroids, two dims",         5,   2,    2,  0},
    {"one dim",                        33,   1,    4,  1},
    {"one register of AVX-512",         7,  16,   16,  0},
    {"two registers, odd dims",        17,  13,   32,  3},
    {"the paper's 2x6",                65,  64,   64,  0},
    {"the paper's 4x8, odd start",     66,  32,  256,  1},
    {"seven bits",                      9,  21,  128,  2},
};
// clang-format on

struct Codebook {
  std::vector<f32> centroids, half_norms;
  u32 dims, n_centroids, n_padded;
  Codebook(u32 n_dims, u32 n)
      : centroids(u64{n_dims} * pq_padded(n)),
        half_norms(pq_padded(n)),
        dims(n_dims),
        n_centroids(n),
        n_padded(pq_padded(n)) {}
  f32& at(u32 c, u32 i) { return centroids[u64{i} * n_padded + c]; }
  void finish() { pq_half_norms(centroids.data(), dims, n_centroids, half_norms.data()); }
};

std::vector<u8> assign(const CpuTable& table, const Codebook& book, const f32* x, u64 x_stride,
                       u32 n_rows) {
  std::vector<u8> codes(n_rows + 2, kCanary);
  table.pq_assign({.x = x,
                   .x_stride = x_stride,
                   .centroids = book.centroids.data(),
                   .half_norms = book.half_norms.data(),
                   .codes = codes.data() + 1,
                   .n_rows = n_rows,
                   .dims = book.dims,
                   .n_padded = book.n_padded});
  REQUIRE(codes.front() == kCanary);
  REQUIRE(codes.back() == kCanary);
  return {codes.begin() + 1, codes.end() - 1};
}

TEST_CASE("load widens stored keys exactly, every bit pattern, alike on every ISA") {
  constexpr u32 kRows = 512;
  for (const u32 dims : {32u, 64u, 128u}) {
    for (const TensorType type : {TensorType::f16, TensorType::q8_0, TensorType::q4_0}) {
      CAPTURE(dims);
      const u64 block_bytes = type == TensorType::q8_0 ? 34 : 18;
      const u64 stride = (type == TensorType::f16 ? 2 * dims : dims / 32 * block_bytes) + 6;
      std::vector<u8> rows(kRows * stride + 1);
      std::vector<f32> want(u64{kRows} * dims);
      u32 next = 0;
      for (u32 r = 0; r < kRows; ++r) {
        u8* row = rows.data() + 1 + r * stride;
        for (u32 i = 0; i < dims; ++i) {
          if (type == TensorType::f16) {
            const u16 half = static_cast<u16>(next++);
            std::memcpy(row + 2 * i, &half, 2);
            want[u64{r} * dims + i] = f16_to_f32(half);
            continue;
          }
          u8* block = row + i / 32 * block_bytes;
          const u16 half = static_cast<u16>((r * 61 + i / 32) % 0x7c00);
          i8 q = static_cast<i8>(next++ * 7);
          std::memcpy(block, &half, 2);
          if (type == TensorType::q8_0) {
            std::memcpy(block + 2 + i % 32, &q, 1);
          } else {
            q = static_cast<i8>(q % 8);
            const i32 nibble = q + 8;
            u8& pair = block[2 + i % 16];
            pair =
                static_cast<u8>(i % 32 < 16 ? (pair & 0xf0) | nibble : (pair & 0x0f) | nibble << 4);
          }
          want[u64{r} * dims + i] = f16_to_f32(half) * static_cast<f32>(q);
        }
      }
      for (const CpuTable& table : cpu_tables()) {
        if (!table.runs_here()) continue;
        CAPTURE(table.isa);
        std::vector<f32> x(want.size() + 1, -5.0f);
        table.pq_load({type, rows.data() + 1, stride, x.data(), kRows, dims});
        CHECK(std::memcmp(x.data(), want.data(), want.size() * sizeof(f32)) == 0);
        CHECK(x.back() == -5.0f);
      }
    }
  }
}

TEST_CASE("assign finds the nearest centroid within its bound, alike on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Codebook book(c.dims, c.n_centroids);
    for (u32 k = 0; k < c.n_centroids; ++k) {
      for (u32 i = 0; i < c.dims; ++i) book.at(k, i) = random.normal();
    }
    book.finish();
    const u64 stride = c.dims + c.misalign;
    std::vector<f32> x(c.n_rows * stride + c.misalign);
    for (f32& value : x) value = random.normal() * 2.0f;
    const std::vector<u8> want =
        assign(cpu_tables().back(), book, x.data() + c.misalign, stride, c.n_rows);
    for (u32 r = 0; r < c.n_rows; ++r) {
      const f32* row = x.data() + c.misalign + r * stride;
      f64 best = -kInf, magnitude_max = 0.0, chosen = 0.0;
      for (u32 k = 0; k < c.n_centroids; ++k) {
        f64 dot = 0.0, norm = 0.0, magnitude = 0.0;
        for (u32 i = 0; i < c.dims; ++i) {
          dot += f64{row[i]} * f64{book.at(k, i)};
          magnitude += std::abs(f64{row[i]} * f64{book.at(k, i)});
          norm += f64{book.at(k, i)} * f64{book.at(k, i)};
        }
        best = std::max(best, dot - norm / 2);
        magnitude_max = std::max(magnitude_max, magnitude + norm);
        if (k == want[r]) chosen = dot - norm / 2;
      }
      REQUIRE(want[r] < c.n_centroids);
      REQUIRE(best - chosen <= 2 * (c.dims + 2) * 0x1p-24 * magnitude_max);
    }
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      CHECK(assign(table, book, x.data() + c.misalign, stride, c.n_rows) == want);
    }
  }
}

TEST_CASE("assign takes the lowest of equal centroids, and 0 where there is no number") {
  for (const u32 n_centroids : {4u, 16u, 64u, 256u}) {
    Codebook book(2, n_centroids);
    for (u32 k = 0; k < n_centroids; ++k) book.at(k, 0) = k % 2 == 0 ? -1.0f : 1.0f;
    book.finish();
    const std::vector<f32> x = {1, 0, -1, 0, kNan, 0, 0, 0, kInf, 0, -kInf, 0, 0, kInf};
    // The infinities meet a centroid's 0 in the other dim, but for the last: inf * 0 is NaN.
    const std::vector<u8> want = {1, 0, 0, 0, 1, 0, 0};
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      CAPTURE(n_centroids);
      CHECK(assign(table, book, x.data(), 2, 7) == want);
    }
  }
}

struct Sums {
  std::vector<i64> sums;
  std::vector<u32> counts;
  bool operator==(const Sums&) const = default;
};

// Row by row in slices; `backwards` takes the last slice first.
Sums accumulate(const CpuTable& table, const std::vector<f32>& x, const std::vector<u8>& codes,
                const Case& c, u32 slice_rows, bool backwards) {
  Sums sums{std::vector<i64>(u64{c.n_centroids} * c.dims + 1, -1), std::vector<u32>(c.n_centroids)};
  std::fill(sums.sums.begin(), sums.sums.end() - 1, 0);
  const u32 n_slices = (c.n_rows + slice_rows - 1) / slice_rows;
  for (u32 s = 0; s < n_slices; ++s) {
    const u32 begin = (backwards ? n_slices - 1 - s : s) * slice_rows;
    table.pq_accumulate({.x = x.data() + c.misalign + u64{begin} * c.dims,
                         .x_stride = c.dims,
                         .codes = codes.data() + begin,
                         .sums = sums.sums.data(),
                         .counts = sums.counts.data(),
                         .n_rows = std::min(slice_rows, c.n_rows - begin),
                         .dims = c.dims});
  }
  REQUIRE(sums.sums.back() == -1);
  return sums;
}

TEST_CASE("accumulate gives exact sums, whatever the order, the slices and the ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::vector<f32> x(u64{c.n_rows} * c.dims + c.misalign);
    for (f32& value : x) value = f16_to_f32(f32_to_f16(random.normal() * 50.0f));
    if (x.size() > 40) {  // what is no f16 too: rounded and clamped, once, in every order
      x[11] = 0x1.8p-25f, x[12] = -0x1.8p-25f, x[13] = 0x1p-25f, x[14] = 1e9f, x[15] = -kInf;
      x[16] = kNan, x[17] = 65536.0f, x[18] = 0.1f;
    }
    std::vector<u8> codes(c.n_rows);
    for (u8& code : codes) code = static_cast<u8>(random.below(c.n_centroids));
    Sums want{std::vector<i64>(u64{c.n_centroids} * c.dims + 1), std::vector<u32>(c.n_centroids)};
    for (u32 r = 0; r < c.n_rows; ++r) {
      want.counts[codes[r]] += 1;
      for (u32 i = 0; i < c.dims; ++i) {
        const f64 value = x[c.misalign + u64{r} * c.dims + i];
        const f64 clamped = std::isnan(value) ? -65536.0 : std::clamp(value, -65536.0, 65536.0);
        want.sums[codes[r] * u64{c.dims} + i] +=
            static_cast<i64>(std::nearbyint(std::ldexp(clamped, 24)));
      }
    }
    want.sums.back() = -1;
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      for (const u32 slice_rows : {1u, 7u, 1000u}) {
        CAPTURE(slice_rows);
        CHECK((accumulate(table, x, codes, c, slice_rows, false) == want));
        CHECK((accumulate(table, x, codes, c, slice_rows, true) == want));
      }
    }
  }
}

TEST_CASE("update moves a centroid to the mean, leaves an empty one, and says how far they went") {
  Codebook book(2, 4);
  book.at(0, 0) = 5.0f, book.at(1, 0) = 7.0f, book.at(1, 1) = -2.0f;
  const std::vector<i64> sums = {3 << 24, i64{-1} << 24, 99, 99, 1, 0, 0, 0};
  const std::vector<u32> counts = {2, 0, 1, 0};
  const f64 shift = pq_update({.sums = sums.data(),
                               .counts = counts.data(),
                               .centroids = book.centroids.data(),
                               .half_norms = book.half_norms.data(),
                               .dims = 2,
                               .n_centroids = 4});
  CHECK(book.at(0, 0) == 1.5f);
  CHECK(book.at(0, 1) == -0.5f);
  CHECK(book.at(1, 0) == 7.0f);  // empty: stays
  CHECK(book.at(1, 1) == -2.0f);
  CHECK(book.at(2, 0) == 0x1p-24f);
  CHECK(shift == 3.5 * 3.5 + 0.5 * 0.5 + 0x1p-48);
  CHECK(book.half_norms[0] == 1.25f);
  CHECK(book.half_norms[1] == 26.5f);
  CHECK(book.half_norms[3] == 0.0f);
  CHECK(book.half_norms[4] == kInf);
}

// --- the whole iteration ---

struct Points {  // 2,000 rows of 80 Gaussians with sd 0.5 around means of N(0, 1), 32 dims
  static constexpr u32 kRows = 2000, kDims = 32, kMeans = 80, kCentroids = 64;
  std::vector<f32> means, rows;
  explicit Points(test::Random& random) : means(kMeans * kDims), rows(kRows * kDims) {
    for (f32& mean : means) mean = random.normal();
    for (u32 r = 0; r < kRows; ++r) {
      const u64 mean = random.below(kMeans) * kDims;
      for (u32 i = 0; i < kDims; ++i) {
        rows[u64{r} * kDims + i] = f16_to_f32(f32_to_f16(means[mean + i] + 0.5f * random.normal()));
      }
    }
  }
};

Codebook first_rows(const Points& points) {
  Codebook book(Points::kDims, Points::kCentroids);
  for (u32 c = 0; c < Points::kCentroids; ++c) {
    for (u32 i = 0; i < Points::kDims; ++i) {
      book.at(c, i) = points.rows[u64{c} * 31 * Points::kDims + i];
    }
  }
  book.finish();
  return book;
}

f64 squared_distance(const f32* row, const std::vector<f64>& centroids, u32 c) {
  f64 sum = 0.0;
  for (u32 i = 0; i < Points::kDims; ++i) {
    const f64 difference = f64{row[i]} - centroids[u64{c} * Points::kDims + i];
    sum += difference * difference;
  }
  return sum;
}

// An f64 Lloyd: labels after each of `n_iterations` updates, then inertia.
struct Lloyd {
  std::vector<f64> centroids;
  std::vector<u32> labels;
  explicit Lloyd(Codebook& book) : labels(Points::kRows) {
    for (u32 c = 0; c < Points::kCentroids; ++c) {
      for (u32 i = 0; i < Points::kDims; ++i) centroids.push_back(book.at(c, i));
    }
  }
  void assign(const Points& points) {
    for (u32 r = 0; r < Points::kRows; ++r) {
      const f32* row = points.rows.data() + u64{r} * Points::kDims;
      labels[r] = 0;
      for (u32 c = 1; c < Points::kCentroids; ++c) {
        const bool nearer =
            squared_distance(row, centroids, c) < squared_distance(row, centroids, labels[r]);
        if (nearer) labels[r] = c;
      }
    }
  }
  // From labels that are given: so that a tie that fell the other way does not run away.
  void update(const Points& points, const std::vector<u8>& given) {
    std::vector<f64> sums(centroids.size());
    std::vector<u32> counts(Points::kCentroids);
    for (u32 r = 0; r < Points::kRows; ++r) {
      counts[given[r]] += 1;
      for (u32 i = 0; i < Points::kDims; ++i) {
        sums[u64{given[r]} * Points::kDims + i] += f64{points.rows[u64{r} * Points::kDims + i]};
      }
    }
    for (u64 i = 0; i < sums.size(); ++i) {
      const u32 count = counts[i / Points::kDims];
      if (count != 0) centroids[i] = sums[i] / count;
    }
  }
};

void iterate(const CpuTable& table, const Points& points, Codebook& book,
             const std::vector<u8>& codes) {
  const Case c = {"", Points::kRows, Points::kDims, Points::kCentroids, 0};
  const Sums sums = accumulate(table, points.rows, codes, c, Points::kRows, false);
  pq_update({.sums = sums.sums.data(),
             .counts = sums.counts.data(),
             .centroids = book.centroids.data(),
             .half_norms = book.half_norms.data(),
             .dims = Points::kDims,
             .n_centroids = Points::kCentroids});
}

f64 inertia(const Points& points, Codebook& book, const std::vector<u8>& codes) {
  const Lloyd as_f64(book);
  f64 sum = 0.0;
  for (u32 r = 0; r < Points::kRows; ++r) {
    sum +=
        squared_distance(points.rows.data() + u64{r} * Points::kDims, as_f64.centroids, codes[r]);
  }
  return sum;
}

// The share of the 200 rows nearest to a query, by inner product, that the 200 best by their
// centroids' products have; the mean over 50 queries, each a mean and N(0, 1). Ties in row order.
f64 recall(const Points& points, Codebook& book, const std::vector<u8>& codes,
           test::Random& random) {
  constexpr u32 kQueries = 50, kBest = 200;
  const Lloyd as_f64(book);
  const auto product = [](const std::vector<f64>& q, const auto* x) {
    f64 sum = 0.0;
    for (u32 i = 0; i < Points::kDims; ++i) sum += q[i] * f64{x[i]};
    return sum;
  };
  const auto best = [](const std::vector<f64>& scores) {
    std::vector<u32> rows(scores.size());
    for (u32 r = 0; r < rows.size(); ++r) rows[r] = r;
    std::stable_sort(rows.begin(), rows.end(), [&](u32 a, u32 b) { return scores[a] > scores[b]; });
    rows.resize(kBest);
    std::sort(rows.begin(), rows.end());
    return rows;
  };
  u64 n_found = 0;
  for (u32 n = 0; n < kQueries; ++n) {
    const u64 mean = random.below(Points::kMeans) * Points::kDims;
    std::vector<f64> q(Points::kDims), exact(Points::kRows), approximate(Points::kRows);
    for (u32 i = 0; i < Points::kDims; ++i) q[i] = f64{points.means[mean + i]} + random.normal();
    for (u32 r = 0; r < Points::kRows; ++r) {
      exact[r] = product(q, points.rows.data() + u64{r} * Points::kDims);
      approximate[r] = product(q, as_f64.centroids.data() + u64{codes[r]} * Points::kDims);
    }
    std::vector<u32> both;
    std::ranges::set_intersection(best(exact), best(approximate), std::back_inserter(both));
    n_found += both.size();
  }
  return static_cast<f64>(n_found) / (kQueries * kBest);
}

TEST_CASE("ten iterations of K-Means find more of what a query wants than none") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const Points points(random);
  const CpuTable& table = cpu_tables().back();
  Codebook book = first_rows(points);
  const auto codes = [&] {
    return assign(table, book, points.rows.data(), Points::kDims, Points::kRows);
  };
  const test::Random of_queries = random;
  test::Random first = of_queries, last = of_queries;  // the same queries
  const f64 before = recall(points, book, codes(), first);
  for (u32 iteration = 0; iteration < 10; ++iteration) iterate(table, points, book, codes());
  const f64 after = recall(points, book, codes(), last);
  MESSAGE("recall@200 of 2,000: " << before << " with no iteration, " << after << " with ten");
  CHECK(after >= before + 0.08);
  CHECK(before > 0.3);  // a tenth by chance
}

TEST_CASE("K-Means follows an f64 Lloyd label by label, and its inertia falls") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const Points points(random);
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    Codebook book = first_rows(points);
    Lloyd lloyd(book);
    f64 before = 0.0, first = 0.0;
    for (u32 iteration = 0; iteration <= 10; ++iteration) {
      CAPTURE(iteration);
      const std::vector<u8> codes =
          assign(table, book, points.rows.data(), Points::kDims, Points::kRows);
      lloyd.assign(points);
      for (u32 r = 0; r < Points::kRows; ++r) {
        const f32* row = points.rows.data() + u64{r} * Points::kDims;
        const f64 ours = squared_distance(row, lloyd.centroids, codes[r]);
        const f64 best = squared_distance(row, lloyd.centroids, lloyd.labels[r]);
        REQUIRE(ours - best <= 1e-5 * best);
      }
      const f64 now = inertia(points, book, codes);
      if (iteration == 0) first = now;
      if (iteration > 0) REQUIRE(now <= before);
      before = now;
      iterate(table, points, book, codes);
      lloyd.update(points, codes);
    }
    CHECK(before <= 0.6 * first);
  }
}

}  // namespace
}  // namespace tarn::kernels::pq_cluster_test
