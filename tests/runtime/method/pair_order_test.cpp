// Goal    pairs of codes get places that hold all tokens and no two of one, and what a query like
//         the known one wants lies in fewer runs than in the order of slots. Of two orders each
//         pair is read from the one where its neighbours are read, too.
// Method  an index over clustered keys; places of all tokens by counting; the k best pairs' tokens
//         for the same query and for another one, counted in runs; a query of NaNs. Of two orders:
//         a table of pairs with full rows and full columns wanted, read in sectors and requests
//         that are counted; the best of random tables, against the better order alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/method/pq/pair_order.h"
#include "tests/runtime/method/synthetic_keys.h"

namespace tarn::method::pair_order_test {
namespace {

constexpr u32 kDims = 32, kTokens = 6000, kSide = 64, kHeads = 2;

// Each token's place.
std::vector<u32> places_of(const PqIndex& pq, std::vector<u32> firsts) {
  std::vector<u32> places;
  for (u32 row = 0; row < pq.n_tokens(); ++row) {
    places.push_back(firsts[u64{pq.code(0, row)} * kSide + pq.code(1, row)]++);
  }
  return places;
}

std::vector<u32> firsts_of(const PqIndex& pq, const std::vector<f32>& q, u32 order) {
  std::vector<u32> counts(u64{kSide} * kSide);
  for (u32 row = 0; row < pq.n_tokens(); ++row)
    ++counts[u64{pq.code(0, row)} * kSide + pq.code(1, row)];
  std::vector<f32> lut(u64{kHeads} * (2 * kSide + kDims));
  place_pairs({.table = *kernels::cpu_table_select("auto").value(),
               .index = pq,
               .query = {q.data(), kHeads, 1.0f},
               .lut = lut.data(),
               .order = order,
               .counts = counts,
               .places = counts});
  return counts;
}

u64 n_runs(const std::set<u32>& of) {
  u64 n = 0;
  for (const u32 place : of) n += of.count(place - 1) == 0 ? 1u : 0u;
  return n;
}

TEST_CASE("tokens of a step's best pairs are neighbours") {
  test::Random random(tarn::test::seed_from_environment());
  const test::Clusters clusters(random, kTokens, kDims, 40, 8, 0.6f);
  const test::Keys keys(clusters.rows, kDims);
  test::Index index({.head_dim = kDims,
                     .adjacent_dims = kDims,
                     .n_subspaces = 2,
                     .code_bits = 6,
                     .capacity_tokens = kTokens});
  index.pq.start(0);
  index.train(*kernels::cpu_table_select("auto").value(), keys, kTokens, 5);
  const PqIndex& pq = index.pq;
  std::vector<f32> q(u64{kHeads} * kDims), nan(q.size(), NAN);
  for (f32& x : q) x = random.normal();
  for (const std::vector<f32>& known : {q, nan}) {
    for (const u32 order : {0u, 1u}) {
      std::vector<u32> places = places_of(pq, firsts_of(pq, known, order));
      std::sort(places.begin(), places.end());
      for (u32 i = 0; i < kTokens; ++i) REQUIRE(places[i] == i);
    }
  }
  std::vector<f32> lut(u64{kHeads} * (2 * kSide + kDims));
  alignas(64) static std::array<std::byte, kernels::kPqPairScratchBytes> scratch;
  std::vector<u32> best(256);
  best.resize(pq.choose_by_pairs(*kernels::cpu_table_select("auto").value(),
                                 {q.data(), kHeads, 0.3f}, 256, lut.data(), scratch.data(),
                                 best.data()));
  const std::vector<u32> places = places_of(pq, firsts_of(pq, q, 0));
  std::set<u32> in_extent;
  for (const u32 slot : best) in_extent.insert(places[slot]);
  const u64 n_in_slots = n_runs({best.begin(), best.end()});
  CAPTURE(n_in_slots);
  CHECK(n_runs(in_extent) * 4 < n_in_slots);
}

// Pairs of a table, a sector each, wanted where is_wanted says so: order 0 by rows, 1 by columns.
template <class Fn>
std::vector<WantedPair> wanted_pairs(Fn&& is_wanted) {
  std::vector<WantedPair> pairs;
  for (u32 row = 0; row < kSide; ++row) {
    for (u32 column = 0; column < kSide; ++column) {
      if (!is_wanted(row, column)) continue;
      const u32 by_row = row * kSide + column, by_column = column * kSide + row;
      pairs.push_back({.begin = {by_row, by_column},
                       .end = {by_row + 1, by_column + 1},
                       .pair = static_cast<u16>(by_row)});
    }
  }
  return pairs;
}

// In sectors, with what a request costs.
u64 cost_of(const std::vector<WantedPair>& pairs, u32 order) {
  std::set<u32> sectors;
  for (const WantedPair& pair : pairs) {
    if (pair.order == order) sectors.insert(pair.begin[order]);
  }
  u64 cost = 0;
  for (auto at = sectors.begin(); at != sectors.end(); ++at) {
    const u32 gap = at == sectors.begin() ? kSide * kSide : *at - *std::prev(at) - 1;
    cost += 1 + std::min(gap, kRequestSectors);
  }
  return cost;
}

TEST_CASE("rows are read from the order of rows, and columns from that of columns") {
  std::vector<WantedPair> pairs =
      wanted_pairs([](u32 row, u32 column) { return row == 7 || column == 40; });
  std::vector<u32> scratch(pairs.size());
  choose_orders(pairs, scratch);
  for (const WantedPair& pair : pairs) {
    const u32 row = pair.pair / kSide, column = pair.pair % kSide;
    CAPTURE(row);
    CAPTURE(column);
    if (row != 7 || column != 40) CHECK(pair.order == (row == 7 ? 0 : 1));
  }
  CHECK(cost_of(pairs, 0) + cost_of(pairs, 1) <= 2 * (kSide + kRequestSectors));
  choose_orders({}, {});
}

TEST_CASE("the best of a table of sums are cheaper to read from two orders than from one") {
  test::Random random(tarn::test::seed_from_environment());
  u64 n_alone = 0, n_both = 0;
  for (u32 draw = 0; draw < 40; ++draw) {
    const f32 threshold = 1.0f + 0.5f * static_cast<f32>(draw % 4);
    std::vector<f32> of_row(kSide), of_column(kSide);
    for (f32& x : of_row) x = random.normal();
    for (f32& x : of_column) x = random.normal();
    std::vector<WantedPair> pairs = wanted_pairs(
        [&](u32 row, u32 column) { return of_row[row] + of_column[column] > threshold; });
    u64 alone = ~u64{0};
    for (const u32 order : {0u, 1u}) {
      for (WantedPair& pair : pairs) pair.order = order;
      alone = std::min(alone, cost_of(pairs, order));
    }
    std::vector<u32> scratch(pairs.size());
    choose_orders(pairs, scratch);
    n_alone += alone;
    n_both += cost_of(pairs, 0) + cost_of(pairs, 1);
  }
  CAPTURE(n_alone);
  CAPTURE(n_both);
  CHECK(n_both * 100 <= n_alone * 93);
}

}  // namespace
}  // namespace tarn::method::pair_order_test
