#include "tests/runtime/method/recall_samples.h"

#include <algorithm>

#include "platform/base/random_at.h"

namespace tarn::method::test {
namespace {

std::vector<f32> exact_scores(const std::vector<f32>& stored, const std::vector<f32>& q) {
  std::vector<f32> scores(n_far(static_cast<u32>(stored.size() / kDim)));
  for (u64 t = 0; t < scores.size(); ++t) {
    for (u32 i = 0; i < kDim; ++i) scores[t] += q[i] * stored[t * kDim + i];
  }
  return scores;
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

Sample runs(Random& random, u32 n_queries, bool is_rotated, u32 n_rows) {
  Clusters clusters(random, n_rows, kDim, 80, 64, 0.5f);
  Queries queries;
  for (u32 i = 0; i < n_queries; ++i) {
    queries.push_back(clusters.query(random));
    if (is_rotated) rotate(queries.back(), kDim, 10000.0, n_rows);
  }
  if (is_rotated) rotate(clusters.rows, kDim, 10000.0, 0);
  return {is_rotated ? "runs, after RoPE" : "runs", Keys(clusters.rows, kDim), queries};
}

// K-Means of all rows until it stands still, as PqIndex::train() does it for a sample.
void cluster_all(const Keys& keys, Index& index) {
  const CpuTable& table = fastest();
  const PqShape& shape = index.shape;
  const u32 n = keys.n(), dims = shape.dims(), n_centroids = shape.n_centroids();
  const std::vector<f32> stored = keys.stored();
  std::vector<f32> x(u64{n} * dims);
  std::vector<u8> codes(n);
  index.pq.begin_codebook(n);
  const u32 n_sample = pq_n_sample(shape, n);
  for (u32 m = 0; m < shape.n_subspaces; ++m) {
    for (u64 t = 0; t < n; ++t) {
      for (u32 i = 0; i < dims; ++i) x[t * dims + i] = stored[t * kDim + test::dim_of(shape, m, i)];
    }
    std::byte* const region = index.region.span().data();
    f32* centroids = reinterpret_cast<f32*>(region) + u64{m} * dims * shape.n_padded();
    f32* norms =
        reinterpret_cast<f32*>(region + pq_layout(shape).half_norms) + u64{m} * shape.n_padded();
    std::vector<u32> drawn;
    for (u32 c = 0; c < n_centroids; ++c) {
      const u32 last = n_sample - n_centroids + c;
      const u32 row = static_cast<u32>(random_at(PqIndex::kSeed, c) % (last + 1));
      drawn.push_back(std::find(drawn.begin(), drawn.end(), row) != drawn.end() ? last : row);
      for (u32 i = 0; i < dims; ++i) {
        centroids[u64{i} * shape.n_padded() + c] =
            x[u64{sample_row(drawn[c], n_sample, n)} * dims + i];
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

}  // namespace

const CpuTable& fastest() {
  for (const CpuTable& table : kernels::cpu_tables()) {
    if (table.runs_here()) return table;
  }
  return kernels::cpu_tables().back();
}

std::vector<u32> best(const CpuTable& table, const std::vector<f32>& scores, u32 n_rows) {
  Region scratch(kernels::kTopKScratchBytes);
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

Wanted wanted_of(const Keys& keys, const Queries& queries) {
  const std::vector<f32> stored = keys.stored();
  Wanted wanted;
  for (const std::vector<f32>& q : queries) {
    wanted.push_back(best(fastest(), exact_scores(stored, q), keys.n()));
  }
  return wanted;
}

f64 recall_of(const Index& index, const Queries& queries, const Wanted& wanted) {
  const u32 n = index.pq.n_tokens();
  std::vector<f32> lut(index.shape.lut_elems()), scores(n);
  f64 sum = 0;
  for (u64 i = 0; i < queries.size(); ++i) {
    index.pq.score(fastest(), {queries[i].data(), 1, 1.0f}, lut.data(), scores.data(), n);
    sum += overlap(best(fastest(), scores, n), wanted[i]);
  }
  return sum / static_cast<f64>(queries.size());
}

Sample low_rank(Random& random, u32 n_queries, u32 n_rows) {
  LowRank source(random);
  std::vector<f32> rows(u64{n_rows} * kDim);
  for (u32 t = 0; t < n_rows; ++t) source.row(rows.data() + u64{t} * kDim);
  Queries queries(n_queries, std::vector<f32>(kDim));
  for (std::vector<f32>& q : queries) source.row(q.data());
  return {"low rank", Keys(rows, kDim), queries};
}

Sample sample_of(Random& random, u32 kind, u32 n_queries, u32 n_rows) {
  if (kind == 2) return low_rank(random, n_queries, n_rows);
  return runs(random, n_queries, kind == 1, n_rows);
}

f64 recall_after(u32 iterations, const Sample& sample, const Wanted& wanted) {
  Index index(shape_2x6(sample.keys.n()));
  index.train(fastest(), sample.keys, sample.keys.n(), iterations);
  return recall_of(index, sample.queries, wanted);
}

f64 recall_converged(const Sample& sample, const Wanted& wanted) {
  Index index(shape_2x6(sample.keys.n()));
  cluster_all(sample.keys, index);
  return recall_of(index, sample.queries, wanted);
}

}  // namespace tarn::method::test
