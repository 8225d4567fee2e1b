// Goal    pairs of codes get places that hold all tokens and no two of one, and what a query like
//         the known one wants lies in fewer runs than in the order of slots.
// Method  an index over clustered keys; places of all tokens by counting; the k best pairs' tokens
//         for the same query and for another one, counted in runs; a query of NaNs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/select/pair_order.h"
#include "tests/runtime/select/synthetic_keys.h"

namespace tarn::select {
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

std::vector<u32> order(const PqIndex& pq, const std::vector<f32>& q) {
  std::vector<u32> counts(u64{kSide} * kSide);
  for (u32 row = 0; row < pq.n_tokens(); ++row)
    ++counts[u64{pq.code(0, row)} * kSide + pq.code(1, row)];
  std::vector<f32> lut(u64{kHeads} * (2 * kSide + kDims));
  place_pairs(kernels::cpu_tables().front(), pq, {q.data(), kHeads, 1.0f}, lut.data(), counts);
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
                     .n_subspaces = 2,
                     .code_bits = 6,
                     .parts = KeyParts::dealt,
                     .capacity_tokens = kTokens});
  index.pq.start(0);
  index.train(kernels::cpu_tables().front(), keys, kTokens, 5);
  const PqIndex& pq = index.pq;
  std::vector<f32> q(u64{kHeads} * kDims), nan(q.size(), NAN);
  for (f32& x : q) x = random.normal();
  for (const std::vector<f32>& known : {q, nan}) {
    std::vector<u32> places = places_of(pq, order(pq, known));
    std::sort(places.begin(), places.end());
    for (u32 i = 0; i < kTokens; ++i) REQUIRE(places[i] == i);
  }
  std::vector<f32> lut(u64{kHeads} * (2 * kSide + kDims));
  alignas(64) static std::array<std::byte, kernels::kPqPairScratchBytes> scratch;
  std::vector<u32> best(256);
  best.resize(pq.choose_by_pairs(kernels::cpu_tables().front(), {q.data(), kHeads, 0.3f}, 256,
                                 lut.data(), scratch.data(), best.data()));
  const std::vector<u32> places = places_of(pq, order(pq, q));
  std::set<u32> in_extent;
  for (const u32 slot : best) in_extent.insert(places[slot]);
  const u64 n_in_slots = n_runs({best.begin(), best.end()});
  CAPTURE(n_in_slots);
  CHECK(n_runs(in_extent) * 4 < n_in_slots);
}

}  // namespace
}  // namespace tarn::select
