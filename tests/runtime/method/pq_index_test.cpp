// Goal    the index of one KV head holds what METHODS 3.1 and 14.2 ask: codes of the nearest
//         centroid, centroids that later tokens do not move, scores that are the query times what
//         the codes stand for, the same decisions in every format, ISA, order of training and
//         layout of RoPE's pairs.
// Method  clustered keys in f16 and q8_0 pages; brute force over the centroids; keys of few
//         distinct sub-vectors for the lossless case; two turns whose border lies inside a packed
//         block; the same keys in both layouts; regions and scratch of exactly the asked size with
//         canaries behind them.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/runtime/method/synthetic_keys.h"

namespace tarn::method::pq_index_test {
namespace {

using kernels::CpuTable;
using kernels::PqCodeFormat;
using test::Index;
using test::Keys;

// Pairs side by side: the layout whose dims take other places.
PqShape shape_2x6(u32 head_dim, u32 capacity, PqCodeFormat format = PqCodeFormat::bytes) {
  return {.head_dim = head_dim,
          .adjacent_dims = head_dim,
          .n_subspaces = 2,
          .code_bits = 6,
          .format = format,
          .capacity_tokens = capacity};
}

std::vector<u8> codes_of(const Index& index) {
  std::vector<u8> codes;
  for (u32 m = 0; m < index.shape.n_subspaces; ++m) {
    for (u32 t = 0; t < index.pq.n_tokens(); ++t) codes.push_back(index.pq.code(m, t));
  }
  return codes;
}

std::vector<f32> codebook_of(const Index& index) {
  const std::span<const f32> book = test::codebook_of(index.pq);
  return {book.begin(), book.end()};
}

// Scores of all rows, heads side by side.
std::vector<f32> scores_of(const CpuTable& table, const Index& index, const std::vector<f32>& q,
                           f32 scale) {
  const u32 n_heads = static_cast<u32>(q.size()) / index.shape.head_dim;
  std::vector<f32> lut(u64{n_heads} * index.shape.lut_elems());
  std::vector<f32> scores(u64{n_heads} * index.pq.n_tokens());
  index.pq.score(table, {q.data(), n_heads, scale}, lut.data(), scores.data(), index.pq.n_tokens());
  return scores;
}

// |score - q.reconstruct(code)| <= 1e-6 of the sum of magnitudes, for all rows and heads.
void check_scores(const CpuTable& table, const Index& index, const std::vector<f32>& q) {
  const u32 d = index.shape.head_dim, n = index.pq.n_tokens();
  const std::vector<f32> scores = scores_of(table, index, q, 0.25f);
  std::vector<f32> key(d);
  for (u32 t = 0; t < n; ++t) {
    test::reconstruct(index.pq, t, key.data());
    for (u32 h = 0; h < q.size() / d; ++h) {
      f64 want = 0.0, magnitude = 0.0;
      for (u32 i = 0; i < d; ++i) {
        want += 0.25 * f64{q[u64{h} * d + i]} * f64{key[i]};
        magnitude += 0.25 * std::abs(f64{q[u64{h} * d + i]} * f64{key[i]});
      }
      REQUIRE(std::abs(f64{scores[u64{h} * n + t]} - want) <= 1e-6 * (1.0 + magnitude));
    }
  }
}

TEST_CASE("a score is the query times the key that the codes stand for, and that is not the key") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 64, kRows = 1000;
  const test::Clusters clusters(random, kRows, kDim, 80, 4, 0.5f);
  std::vector<f32> q = clusters.query(random);
  for (const f32 x : clusters.query(random)) q.push_back(x);
  for (const kernels::KvType type : {kernels::KvType::f16, kernels::KvType::q8_0}) {
    const Keys keys(clusters.rows, kDim, type);
    for (const CpuTable& table : kernels::cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      Index index(shape_2x6(kDim, kRows));
      index.train(table, keys, kRows, 3);
      CHECK(index.region.intact());
      CHECK(index.scratch.intact());
      check_scores(table, index, q);
      f64 error = 0.0;
      const std::vector<f32> stored = keys.stored();
      std::vector<f32> key(kDim);
      for (u32 t = 0; t < kRows; ++t) {
        test::reconstruct(index.pq, t, key.data());
        for (u32 i = 0; i < kDim; ++i) error += std::abs(key[i] - stored[u64{t} * kDim + i]);
      }
      CHECK(error / (u64{kRows} * kDim) > 0.1);  // else nothing was compressed
    }
  }
}

TEST_CASE("training gives the same bits on every ISA and in any order of sub-spaces") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 128, kRows = 2050;
  const test::Clusters clusters(random, kRows, kDim, 80, 7, 0.5f);
  const Keys keys(clusters.rows, kDim);
  Index want(shape_2x6(kDim, kRows));
  want.train(kernels::cpu_tables().back(), keys, kRows, 4);
  for (const CpuTable& table : kernels::cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    Index index(shape_2x6(kDim, kRows));
    index.pq.begin_codebook(kRows);
    CHECK(index.train_subspace(table, keys, kRows, 1, 4) == 4);
    CHECK(index.train_subspace(table, keys, kRows, 0, 4) == 4);
    index.pq.end_codebook();
    CHECK(codebook_of(index) == codebook_of(want));
    CHECK(codes_of(index) == codes_of(want));
  }
}

TEST_CASE("more iterations end by themselves, and bring the keys closer") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 32, kRows = 1500;
  const test::Clusters clusters(random, kRows, kDim, 80, 1, 0.5f);
  const Keys keys(clusters.rows, kDim);
  const std::vector<f32> stored = keys.stored();
  const CpuTable& table = kernels::cpu_tables().front().runs_here() ? kernels::cpu_tables().front()
                                                                    : kernels::cpu_tables().back();
  f64 before = 1e30;
  for (const u32 iterations : {0u, 3u, 300u}) {
    Index index({.head_dim = kDim, .n_subspaces = 1, .code_bits = 6, .capacity_tokens = kRows});
    index.pq.begin_codebook(kRows);
    const u32 n_updates = index.train_subspace(table, keys, kRows, 0, iterations);
    index.pq.end_codebook();
    if (iterations < 300) CHECK(n_updates == iterations);
    if (iterations == 300) CHECK(n_updates < 300);
    f64 inertia = 0.0;
    std::vector<f32> key(kDim);
    for (u32 t = 0; t < kRows; ++t) {
      test::reconstruct(index.pq, t, key.data());
      for (u32 i = 0; i < kDim; ++i) {
        const f64 difference = f64{key[i]} - f64{stored[u64{t} * kDim + i]};
        inertia += difference * difference;
      }
    }
    CHECK(inertia < before);
    before = inertia;
  }
}

TEST_CASE("tokens that leave the local window get the nearest centroid, and move none") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 64, kRows = 1010;
  const test::Clusters clusters(random, kRows, kDim, 80, 3, 0.5f);
  const Keys keys(clusters.rows, kDim);
  const std::vector<f32> stored = keys.stored();
  for (const PqCodeFormat format : {PqCodeFormat::bytes, PqCodeFormat::packed6}) {
    for (const CpuTable& table : kernels::cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      Index index(shape_2x6(kDim, kRows, format));
      index.pq.start(32);
      index.train(table, keys, 904, 5);
      const std::vector<f32> before = codebook_of(index);
      const std::vector<u8> codes_before = codes_of(index);
      for (u32 slot = 936; slot < 946; ++slot) {  // ten tokens, one a step
        index.pq.take_in(table, keys.view(), slot + 1, index.scratch.span());
      }
      REQUIRE(index.pq.n_tokens() == 914);
      CHECK(codebook_of(index) == before);
      for (u32 m = 0; m < 2; ++m) {
        for (u32 t = 0; t < 904; ++t) {
          REQUIRE(index.pq.code(m, t) == codes_before[u64{m} * 904 + t]);
        }
        for (u32 t = 904; t < 914; ++t) {
          f64 best = 1e30, chosen = 0.0;
          for (u32 c = 0; c < 64; ++c) {
            f64 distance = 0.0;
            for (u32 i = 0; i < 32; ++i) {
              const f64 x = stored[u64{32 + t} * kDim + test::dim_of(index.shape, m, i)];
              const f64 difference = x - f64{before[(u64{m} * 32 + i) * 64 + c]};
              distance += difference * difference;
            }
            best = std::min(best, distance);
            if (c == index.pq.code(m, t)) chosen = distance;
          }
          REQUIRE(chosen <= best * (1 + 1e-5));
        }
      }
      CHECK(index.region.intact());
    }
  }
}

TEST_CASE("few distinct sub-vectors are kept without loss") {
  constexpr u32 kDim = 16, kRows = 256;
  for (const u32 adjacent_dims : {0u, kDim}) {
    const PqShape shape{.head_dim = kDim,
                        .adjacent_dims = adjacent_dims,
                        .n_subspaces = 2,
                        .code_bits = 8,
                        .capacity_tokens = kRows};
    std::vector<f32> rows(u64{kRows} * kDim);
    for (u32 t = 0; t < kRows; ++t) {
      for (u32 i = 0; i < kDim; ++i) {
        // 16 values in the first half, 16 in the second, all 256 pairs; exact in f16.
        const u32 value = i < 8 ? t % 16 : t / 16;
        rows[u64{t} * kDim + i] = static_cast<f32>((value * (i + 3)) % 17) - 8.0f;
      }
    }
    const Keys keys(rows, kDim);
    Index index(shape);
    index.train(kernels::cpu_tables().back(), keys, kRows, 2);  // all rows are centroids
    std::vector<f32> key(kDim);
    for (u32 t = 0; t < kRows; ++t) {
      test::reconstruct(index.pq, t, key.data());
      for (u32 i = 0; i < kDim; ++i) REQUIRE(key[i] == rows[u64{t} * kDim + i]);
    }
  }
}

// METHODS 3.1: where a dim stands in the order of the paper's models.
u32 place_of(u32 dim, u32 adjacent_dims) {
  if (dim >= adjacent_dims) return dim;
  return dim % 2 * (adjacent_dims / 2) + dim / 2;
}

TEST_CASE("a key is cut into contiguous parts in the order of the paper's models") {
  struct Case {
    u32 head_dim, adjacent_dims;
  };
  for (const Case& c : {Case{64, 0}, Case{64, 64}, Case{64, 48}, Case{128, 128}, Case{8, 2}}) {
    for (const u32 n_subspaces : {1u, 2u, 4u, 8u}) {
      CAPTURE(c.head_dim);
      CAPTURE(c.adjacent_dims);
      CAPTURE(n_subspaces);
      const PqShape shape{
          .head_dim = c.head_dim, .adjacent_dims = c.adjacent_dims, .n_subspaces = n_subspaces};
      std::vector<u32> dims(c.head_dim, c.head_dim);  // by their places
      for (u32 dim = 0; dim < c.head_dim; ++dim) dims[place_of(dim, c.adjacent_dims)] = dim;
      for (u32 place = 0; place < c.head_dim; ++place) {
        REQUIRE(test::dim_of(shape, place / shape.dims(), place % shape.dims()) == dims[place]);
      }
    }
  }
  const PqShape llama{.head_dim = 128, .adjacent_dims = 128, .n_subspaces = 2};
  for (u32 dim = 0; dim < 128; ++dim) REQUIRE(test::dim_of(llama, dim % 2, dim / 2) == dim);
}

TEST_CASE("codes do not depend on how a model lays out RoPE's pairs") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 64, kRows = 700, kClustered = 600;
  const test::Clusters clusters(random, kRows, kDim, 80, 4, 0.5f);
  const Keys halves(clusters.rows, kDim);
  std::vector<f32> q = clusters.query(random);
  for (const u32 n_rotary : {kDim, kDim - 16}) {
    const auto as_adjacent = [&](const std::vector<f32>& rows) {
      std::vector<f32> out(rows.size());
      for (u64 i = 0; i < rows.size(); ++i) {
        out[i] = rows[i / kDim * kDim + place_of(static_cast<u32>(i % kDim), n_rotary)];
      }
      return out;
    };
    const Keys adjacent(as_adjacent(clusters.rows), kDim);
    for (const u32 n_subspaces : {1u, 2u, 4u, 8u}) {
      CAPTURE(n_rotary);
      CAPTURE(n_subspaces);
      const CpuTable& table = kernels::cpu_tables().back();
      PqShape shape{
          .head_dim = kDim, .n_subspaces = n_subspaces, .code_bits = 6, .capacity_tokens = kRows};
      Index want(shape);
      shape.adjacent_dims = n_rotary;
      Index got(shape);
      for (Index* index : {&want, &got}) {
        const Keys& keys = index == &want ? halves : adjacent;
        index->train(table, keys, kClustered, 3);
        index->pq.take_in(table, keys.view(), kRows, index->scratch.span());
      }
      CHECK(codes_of(got) == codes_of(want));
      CHECK(codebook_of(got) == codebook_of(want));
      CHECK(scores_of(table, got, as_adjacent(q), 0.25f) == scores_of(table, want, q, 0.25f));
      std::vector<f32> key(kDim), other(kDim);
      test::reconstruct(want.pq, kRows - 1, key.data());
      test::reconstruct(got.pq, kRows - 1, other.data());
      CHECK(other == as_adjacent(key));
    }
  }
}

TEST_CASE("a search has the same scores on every ISA, and packed codes take less room") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kDim = 64, kClustered = 350, kRows = 700;
  const test::Clusters clusters(random, kRows, kDim, 80, 5, 0.5f);
  const Keys keys(clusters.rows, kDim);
  std::vector<f32> q = clusters.query(random);
  for (const f32 x : clusters.query(random)) q.push_back(x);
  std::vector<f32> want;
  for (const PqCodeFormat format : {PqCodeFormat::bytes, PqCodeFormat::packed6}) {
    for (const CpuTable& table : kernels::cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      Index index(shape_2x6(kDim, kRows, format));
      index.train(table, keys, kClustered, 3);
      index.pq.take_in(table, keys.view(), kRows, index.scratch.span());
      CHECK(index.pq.n_clustered() == kClustered);
      check_scores(table, index, q);
      const std::vector<f32> scores = scores_of(table, index, q, 0.25f);
      if (want.empty()) want = scores;
      CHECK(scores == want);
      CHECK(index.region.intact());
    }
  }
  const auto region_bytes = [](u32 capacity, PqCodeFormat format) {
    return pq_layout(shape_2x6(kDim, capacity, format)).bytes;
  };
  const u64 bytes = region_bytes(6400, PqCodeFormat::bytes);
  CHECK(bytes - region_bytes(6400, PqCodeFormat::packed6) == 2 * 6400 / 4);  // 1.5 bytes a token
  CHECK(region_bytes(6400 + 65536, PqCodeFormat::bytes) - bytes == 2 * 65536);
}

}  // namespace
}  // namespace tarn::method::pq_index_test
