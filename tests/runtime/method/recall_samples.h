// Keys of three kinds with the queries that look for them, what exact scores find, and how much of
// that an index of 2x6 finds: recall@k of the rows further than 4K away, k = 5 % of them.
#pragma once

#include <vector>

#include "tests/runtime/method/synthetic_keys.h"

namespace tarn::method::test {

using kernels::CpuTable;

inline constexpr u32 kDim = 128, kRows = 8192, kNear = 4096;
inline constexpr u32 kQueries = 20;

constexpr u32 n_far(u32 n_rows) { return n_rows - kNear; }
constexpr u32 n_chosen(u32 n_rows) { return n_far(n_rows) / 20; }

const CpuTable& fastest();
// As rotate() lays out pairs.
inline PqShape shape_2x6(u32 n_rows) {
  return {.head_dim = kDim,
          .adjacent_dims = kDim,
          .n_subspaces = 2,
          .code_bits = 6,
          .capacity_tokens = n_rows};
}

using Queries = std::vector<std::vector<f32>>;
using Wanted = std::vector<std::vector<u32>>;  // rows, of each query

// Of scores of n_rows rows, or of the far ones of them.
std::vector<u32> best(const CpuTable& table, const std::vector<f32>& scores, u32 n_rows);
// The share of `a` that is in `b`, too; both ascend.
f64 overlap(const std::vector<u32>& a, const std::vector<u32>& b);

// The rows that each query wants, by exact scores.
Wanted wanted_of(const Keys& keys, const Queries& queries);
// Mean recall@k of an index.
f64 recall_of(const Index& index, const Queries& queries, const Wanted& wanted);

struct Sample {
  const char* name;
  Keys keys;
  Queries queries;
};
Sample low_rank(Random& random, u32 n_queries, u32 n_rows);
// Kinds: runs, runs after RoPE, and rows of low rank, which have no clusters.
inline constexpr u32 kKinds = 3, kLowRank = 2;
Sample sample_of(Random& random, u32 kind, u32 n_queries, u32 n_rows);

// Mean recall@k of codebooks after so many iterations at most, as PqIndex::train() makes them; and
// of those of all rows by K-Means until it stands still, from the same first centroids.
f64 recall_after(u32 iterations, const Sample& sample, const Wanted& wanted);
f64 recall_converged(const Sample& sample, const Wanted& wanted);

}  // namespace tarn::method::test
