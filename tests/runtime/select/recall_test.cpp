// Goal    the index finds what matters: recall@k against exact scores on keys that look like a
//         cache's (clustered in runs, turned by RoPE), far above chance, above a few iterations
//         fewer, and gone where somebody clusters keys before RoPE or mixes up codes.
// Method  METHODS 14.2's detector: 8,192 rows of 128 dims, base 10,000, runs of 64 around 80 means,
//         2x6, 10 iterations, queries near a mean at the end, k = 5 % of the rows further than 4K
//         away; the mean over 20 queries is printed. Then rows of low rank. Both kinds with few
//         iterations against 300, which is K-Means until it stands still; and of 32,768 rows, where
//         a sample of a quarter is clustered, against K-Means of all of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "runtime/select/random_at.h"
#include "tests/runtime/select/synthetic_keys.h"
#include "tests/support/slow_build.h"

namespace tarn::select {
namespace {

using kernels::CpuTable;
using test::Clusters;
using test::Index;
using test::Keys;
using test::Random;

constexpr u32 kDim = 128, kRows = 8192, kManyRows = 32768, kNear = 4096;
constexpr u32 kQueries = 20, kManyQueries = 60;

constexpr u32 n_far(u32 n_rows) { return n_rows - kNear; }
constexpr u32 n_chosen(u32 n_rows) { return n_far(n_rows) / 20; }
constexpr u32 kChosen = n_chosen(kRows);

const CpuTable& fastest() {
  for (const CpuTable& table : kernels::cpu_tables()) {
    if (table.runs_here()) return table;
  }
  return kernels::cpu_tables().back();
}

// Of scores of n_rows rows, or of the far ones of them.
std::vector<u32> best(const CpuTable& table, const std::vector<f32>& scores, u32 n_rows) {
  test::Region scratch(kernels::kTopKScratchBytes);
  std::vector<u32> places(n_chosen(n_rows));
  table.top_k(
      {scores.data(), places.data(), scratch.span().data(), n_far(n_rows), n_chosen(n_rows)});
  return places;
}

f64 overlap(const std::vector<u32>& a, const std::vector<u32>& b) {
  std::vector<u32> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return static_cast<f64>(both.size()) / static_cast<f64>(a.size());
}

PqShape shape_2x6(u32 n_rows) {
  return {.head_dim = kDim, .n_subspaces = 2, .code_bits = 6, .capacity_tokens = n_rows};
}

std::vector<f32> exact_scores(const std::vector<f32>& stored, const std::vector<f32>& q) {
  std::vector<f32> scores(n_far(static_cast<u32>(stored.size() / kDim)));
  for (u64 t = 0; t < scores.size(); ++t) {
    for (u32 i = 0; i < kDim; ++i) scores[t] += q[i] * stored[t * kDim + i];
  }
  return scores;
}

struct Recalls {
  f64 recall = 0, shuffled = 0, random = 0;
};

using Queries = std::vector<std::vector<f32>>;

// The rows that each query wants, by exact scores.
std::vector<std::vector<u32>> wanted_of(const Keys& keys, const Queries& queries) {
  const std::vector<f32> stored = keys.stored();
  std::vector<std::vector<u32>> wanted;
  for (const std::vector<f32>& q : queries) {
    wanted.push_back(best(fastest(), exact_scores(stored, q), keys.n()));
  }
  return wanted;
}

// Mean recall@k of an index.
f64 recall_of(const Index& index, const Queries& queries,
              const std::vector<std::vector<u32>>& wanted) {
  const u32 n = index.pq.n_tokens();
  std::vector<f32> lut(index.shape.lut_elems()), scores(n);
  f64 sum = 0;
  for (u64 i = 0; i < queries.size(); ++i) {
    index.pq.score(fastest(), {queries[i].data(), 1, 1.0f}, lut.data(), scores.data(), n);
    sum += overlap(best(fastest(), scores, n), wanted[i]);
  }
  return sum / static_cast<f64>(queries.size());
}

// Of one over `coded` against exact scores over `exact`, and of what should find nothing.
Recalls measure(Random& random, const Keys& exact, const Keys& coded, u32 iterations,
                const Queries& queries) {
  const CpuTable& table = fastest();
  Index index(shape_2x6(kRows));
  index.train(table, coded, kRows, iterations);
  const std::vector<std::vector<u32>> wanted = wanted_of(exact, queries);
  std::vector<f32> lut(index.shape.lut_elems()), shuffled(n_far(kRows)), noise(n_far(kRows));
  Recalls sum{.recall = recall_of(index, queries, wanted)};
  for (u64 i = 0; i < queries.size(); ++i) {
    index.pq.fill_lut(table, 0, {queries[i].data(), 1, 1.0f}, lut.data());
    // Sub-space 1 of another token: codes that somebody wrote to the wrong place.
    for (u32 t = 0; t < n_far(kRows); ++t) {
      const u32 other = (t * 2654435761u) % kRows;
      shuffled[t] =
          lut[index.pq.code(0, other)] + lut[64 + index.pq.code(1, (other + 977) % kRows)];
      noise[t] = random.normal();
    }
    const f64 n = static_cast<f64>(queries.size());
    sum.shuffled += overlap(best(table, shuffled, kRows), wanted[i]) / n;
    sum.random += overlap(best(table, noise, kRows), wanted[i]) / n;
  }
  return sum;
}

TEST_CASE("codes of keys after RoPE find twice what codes of keys before it find") {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  Clusters clusters(random, kRows, kDim, 80, 64, 0.5f);
  const Keys before(clusters.rows, kDim);
  std::vector<std::vector<f32>> queries;
  for (u32 i = 0; i < kQueries; ++i) {
    std::vector<f32> q = clusters.query(random);
    test::rotate(q, kDim, 10000.0, kRows);
    queries.push_back(q);
  }
  std::vector<f32> rotated = clusters.rows;
  test::rotate(rotated, kDim, 10000.0, 0);
  const Keys after(rotated, kDim);

  const Recalls right = measure(random, after, after, 10, queries);
  const Recalls wrong = measure(random, after, before, 10, queries);
  const Recalls none = measure(random, after, after, 0, queries);
  MESSAGE("recall@" << kChosen << " of " << n_far(kRows) << ": after RoPE " << right.recall
                    << ", before RoPE " << wrong.recall << ", no iteration " << none.recall
                    << ", shuffled codes " << right.shuffled << ", random " << right.random);
  CHECK(right.recall >= 2 * wrong.recall);
  CHECK(right.recall >= 0.2);
  CHECK(right.recall >= none.recall);
  CHECK(right.recall >= 3 * right.shuffled);
  CHECK(right.shuffled < 0.1);  // 5 % by chance
  CHECK(right.random < 0.1);
}

// Each half of a key, which is a sub-space, lies in a space of its own of 4 dims.
struct LowRank {
  static constexpr u32 kRank = 4;
  Random& random;
  std::vector<f32> basis = std::vector<f32>(u64{2 * kRank} * kDim);
  explicit LowRank(Random& of) : random(of) {
    for (f32& x : basis) x = random.normal();
  }
  void row(f32* out) {
    std::vector<f32> weights(kRank);
    for (f32& weight : weights) weight = random.normal();
    for (u32 i = 0; i < kDim; ++i) {
      const u64 half = i < kDim / 2 ? 0 : kRank;
      out[i] = 0.1f * random.normal();
      for (u32 r = 0; r < kRank; ++r) out[i] += weights[r] * basis[(half + r) * kDim + i];
    }
  }
};

struct Sample {
  const char* name;
  Keys keys;
  std::vector<std::vector<f32>> queries;
};
Sample low_rank(Random& random, u32 n_queries, u32 n_rows = kRows) {
  LowRank source(random);
  std::vector<f32> rows(u64{n_rows} * kDim);
  for (u32 t = 0; t < n_rows; ++t) source.row(rows.data() + u64{t} * kDim);
  std::vector<std::vector<f32>> queries(n_queries, std::vector<f32>(kDim));
  for (std::vector<f32>& q : queries) source.row(q.data());
  return {"low rank", Keys(rows, kDim), queries};
}
Sample runs(Random& random, u32 n_queries, bool is_rotated, u32 n_rows = kRows) {
  Clusters clusters(random, n_rows, kDim, 80, 64, 0.5f);
  std::vector<std::vector<f32>> queries;
  for (u32 i = 0; i < n_queries; ++i) {
    queries.push_back(clusters.query(random));
    if (is_rotated) test::rotate(queries.back(), kDim, 10000.0, n_rows);
  }
  if (is_rotated) test::rotate(clusters.rows, kDim, 10000.0, 0);
  return {is_rotated ? "runs, after RoPE" : "runs", Keys(clusters.rows, kDim), queries};
}
Sample sample_of(Random& random, u32 kind, u32 n_queries, u32 n_rows) {
  if (kind == 2) return low_rank(random, n_queries, n_rows);
  return runs(random, n_queries, kind == 1, n_rows);
}

TEST_CASE("keys of low rank are found nearly as exact scores find them; more iterations help") {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  const Sample sample = low_rank(random, kQueries);
  f64 recalls[3];
  constexpr u32 kIterations[] = {0, 3, 100};
  for (u32 i = 0; i < 3; ++i) {
    recalls[i] = measure(random, sample.keys, sample.keys, kIterations[i], sample.queries).recall;
  }
  MESSAGE("low rank, recall@" << kChosen << " with 0, 3 and 100 iterations: " << recalls[0] << " "
                              << recalls[1] << " " << recalls[2]);
  CHECK(recalls[2] >= 0.5);
  CHECK(recalls[1] >= 0.92 * recalls[2]);
  CHECK(recalls[2] > recalls[0]);
}

// Rows without any clusters, of which 3 iterations miss more, are the third kind.
// Thousands of iterations are minutes on an emulator, of the code that the cases above run there.
TEST_CASE("the default's iterations, and 3, find 0.95 of what converged codebooks find" *
          doctest::skip(tarn::test::kSlowBuild)) {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDraws = 2;
  const u32 n_default = SelectConfig{}.iterations;
  CHECK(n_default >= 3);
  for (u32 kind = 0; kind < 3; ++kind) {
    f64 converged = 0, by_default = 0, few = 0;
    std::string name;
    for (u32 draw = 0; draw < kDraws; ++draw) {
      const Sample sample = sample_of(random, kind, kManyQueries, kRows);
      const auto recall = [&](u32 iterations) {
        return measure(random, sample.keys, sample.keys, iterations, sample.queries).recall /
               kDraws;
      };
      name = sample.name;
      converged += recall(kIterationsMax);
      by_default += recall(n_default);
      few += recall(3);
    }
    CAPTURE(name);
    MESSAGE(name << ", recall@" << kChosen << ": converged " << converged << ", default "
                 << by_default << " (" << by_default / converged << "), 3 iterations " << few
                 << " (" << few / converged << ")");
    CHECK(by_default >= 0.95 * converged);
    CHECK(few >= (kind == 2 ? 0.9 : 0.95) * converged);
  }
}

// K-Means of all rows until it stands still, as PqIndex::train() does it for a sample.
void cluster_all(const CpuTable& table, const Keys& keys, Index& index) {
  const PqShape& shape = index.shape;
  const u32 n = keys.n(), dims = shape.dims(), n_centroids = shape.n_centroids();
  const std::vector<f32> stored = keys.stored();
  std::vector<f32> x(u64{n} * dims);
  std::vector<u8> codes(n);
  index.pq.begin_codebook(n);
  const u32 n_sample = PqIndex::n_sample(shape, n);
  for (u32 m = 0; m < shape.n_subspaces; ++m) {
    for (u64 t = 0; t < n; ++t) {
      for (u32 i = 0; i < dims; ++i) x[t * dims + i] = stored[t * kDim + shape.dim_of(m, i)];
    }
    std::byte* const region = index.region.span().data();
    f32* centroids = reinterpret_cast<f32*>(region) + u64{m} * dims * shape.n_padded();
    f32* norms = reinterpret_cast<f32*>(region + PqIndex::layout(shape).half_norms) +
                 u64{m} * shape.n_padded();
    std::vector<u32> drawn;
    for (u32 c = 0; c < n_centroids; ++c) {
      const u32 last = n_sample - n_centroids + c;
      const u32 row = static_cast<u32>(random_at(PqIndex::kSeed, c) % (last + 1));
      drawn.push_back(std::find(drawn.begin(), drawn.end(), row) != drawn.end() ? last : row);
      for (u32 i = 0; i < dims; ++i) {
        centroids[u64{i} * shape.n_padded() + c] =
            x[u64{PqIndex::sample_row(drawn[c], n_sample, n)} * dims + i];
      }
    }
    kernels::pq_half_norms(centroids, dims, n_centroids, norms);
    f64 way = PqIndex::kTolerance + 1;
    for (u32 k = 0; k < kIterationsMax && way > PqIndex::kTolerance; ++k) {
      std::vector<i64> sums(u64{n_centroids} * dims);
      std::vector<u32> counts(n_centroids);
      table.pq_assign({x.data(), dims, centroids, norms, codes.data(), n, dims, shape.n_padded()});
      table.pq_accumulate({x.data(), dims, codes.data(), sums.data(), counts.data(), n, dims});
      way = kernels::pq_update({sums.data(), counts.data(), centroids, norms, dims, n_centroids});
    }
    index.pq.code({table, keys.view(), m, 0, n, index.scratch.span()});
  }
  index.pq.end_codebook();
}

// Each longer prompt gets codebooks of a sample. One draw scatters by 0.03 and more, so the floors
// are lower than the 0.95 that is wanted. Means over 7 seeds, from the same first centroids:
//   runs               default 0.99, 3 iterations 0.99; of 65,536 rows 1.00 and 1.00
//   runs, after RoPE   default 0.96, 3 iterations 0.92; of 65,536 rows 0.94 and 0.92
//   low rank           default 0.96, 3 iterations 0.92; of 65,536 rows 0.96 and 0.93
// What is missed of 0.95 is iterations, and not the sample: 16 have 0.97 and 0.98 here and 0.952
// and 0.978 of 65,536 rows; 256 rows a centroid instead of 128 have 0.96 and 0.96 by default.
TEST_CASE("of many rows codebooks of a sample find most of what those of all rows find" *
          doctest::skip(tarn::test::kSlowBuild)) {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  CHECK(PqIndex::n_sample(shape_2x6(kManyRows), kManyRows) == kRows);
  for (u32 kind = 0; kind < 3; ++kind) {
    const Sample sample = sample_of(random, kind, kQueries, kManyRows);
    const std::vector<std::vector<u32>> wanted = wanted_of(sample.keys, sample.queries);
    const auto recall = [&](u32 iterations) {
      Index index(shape_2x6(kManyRows));
      index.train(fastest(), sample.keys, kManyRows, iterations);
      return recall_of(index, sample.queries, wanted);
    };
    Index index(shape_2x6(kManyRows));
    cluster_all(fastest(), sample.keys, index);
    const f64 converged = recall_of(index, sample.queries, wanted);
    const f64 by_default = recall(SelectConfig{}.iterations), few = recall(3);
    const std::string name = sample.name;
    CAPTURE(name);
    MESSAGE(name << ", recall@" << n_chosen(kManyRows) << " of " << n_far(kManyRows)
                 << ": converged, of all rows " << converged << ", default " << by_default << " ("
                 << by_default / converged << "), 3 iterations " << few << " (" << few / converged
                 << ")");
    CHECK(by_default >= 0.9 * converged);
    CHECK(few >= 0.85 * converged);
  }
}

}  // namespace
}  // namespace tarn::select
