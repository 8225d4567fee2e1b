// Goal    what is said to be on the device is what was copied there last, of the very groups that
//         the sequence has now; units go to who asks, in order, and come back from who does not.
// Method  sequences over a small pool, stripes of two groups, three units; cuts, forks and other
//         sessions of the same number; each answer against what was put.
#include "runtime/kv/stripe_cache.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/carved.h"

namespace tarn::kv::stripe_cache_test {
namespace {

constexpr u32 kLayers = 2;
constexpr u32 kPage = 16;
constexpr StripeShape kShape{
    .n_units = 3, .n_cache_layers = kLayers, .stripe_groups = 2, .page_tokens = kPage};
constexpr u32 kStripe = kShape.stripe_groups * kPage;

struct World {
  World() {
    const GroupShape shape{.n_kv_heads = 1, .page_tokens = kPage, .vector_bytes = 4};
    constexpr u32 kGroups = 64;
    region.resize(kGroups * shape.group_bytes());
    pool_memory = test::carved([&](Carver& c) { pool.init(c, shape, kGroups); });
    pool.lie_in(region);
    for (u32 i = 0; i < 3; ++i) {
      tables[i].resize(Sequence::n_entries(kLayers, 10 * kPage, kPage));
      sequences[i].init(&pool, kLayers, 10 * kPage, tables[i]);
    }
    kept_memory = test::carved([&](Carver& c) { kept.init(c, kShape); });
  }
  void grow(u32 i, u32 n) {
    REQUIRE(sequences[i].reserve(n));
    sequences[i].commit(n);
  }
  // All layers of the session's stripe, as a step puts them; false where it has no unit.
  bool put(u32 i, u32 stripe) {
    for (u32 layer = 0; layer < kLayers; ++layer) {
      const std::optional<u32> piece = kept.piece(i, layer, stripe);
      if (!piece) return false;
      kept.put(*piece, sequences[i]);
    }
    return true;
  }
  u32 n_kept(u32 i) const { return kept.n_kept_groups(i, sequences[i]); }

  std::vector<std::byte> region, pool_memory, kept_memory;
  std::array<std::vector<GroupRef>, 3> tables;
  GroupPool pool;
  std::array<Sequence, 3> sequences;
  StripeCache kept;
};

TEST_CASE("a stripe is kept once it is full, copied in every layer, and of the groups it was of") {
  World w;
  w.grow(0, kStripe - 1);
  CHECK(!w.kept.is_full(0, w.sequences[0]));
  w.grow(0, kStripe + 2);
  CHECK(w.kept.is_full(0, w.sequences[0]));
  CHECK(w.kept.is_full(1, w.sequences[0]));
  CHECK(!w.kept.is_full(2, w.sequences[0]));
  const u32 first = *w.kept.piece(0, 0, 0);
  CHECK(!w.kept.has(first, w.sequences[0]));
  w.kept.put(first, w.sequences[0]);
  CHECK(w.kept.has(first, w.sequences[0]));
  CHECK(w.n_kept(0) == 0);  // the other layer is missing
  REQUIRE(w.put(0, 0));
  CHECK(w.n_kept(0) == 2);
  REQUIRE(w.put(0, 1));
  CHECK(w.n_kept(0) == 4);
  // A cut writes into a group that was sealed, or, where a fork has it, into a copy.
  for (const bool is_forked : {false, true}) {
    if (is_forked) REQUIRE(w.sequences[1].fork_from(w.sequences[0]));
    CHECK(w.n_kept(1) == 0);
    REQUIRE(w.sequences[0].truncate(kStripe + 5));
    CHECK(w.n_kept(0) == 2);
    w.grow(0, kStripe);
    CHECK(w.n_kept(0) == 2);
    REQUIRE(w.put(0, 1));
    CHECK(w.n_kept(0) == 4);
  }
  // Another conversation under the same number.
  w.sequences[0].clear();
  CHECK(w.n_kept(0) == 0);
  w.grow(0, 2 * kStripe);
  CHECK(w.n_kept(0) == 0);
}

TEST_CASE("units go to the first stripes, and from a session that does not step to one that does") {
  World w;
  for (u32 i = 0; i < 3; ++i) w.grow(i, 4 * kStripe);
  w.kept.begin_step();
  CHECK(!w.kept.piece(0, 0, 1));  // not before the first
  REQUIRE(w.put(0, 0));
  REQUIRE(w.put(1, 0));
  REQUIRE(w.put(0, 1));
  CHECK(!w.put(0, 2));  // there are three
  CHECK(!w.put(2, 0));
  CHECK(w.n_kept(0) == 4);
  for (u64 i = 0; i <= StripeCache::kIdleSteps; ++i) {
    w.kept.begin_step();
    REQUIRE(w.put(0, 0));
    REQUIRE(w.put(0, 1));
  }
  REQUIRE(w.put(2, 0));
  CHECK(w.n_kept(1) == 0);
  CHECK(w.n_kept(2) == 2);
  CHECK(w.n_kept(0) == 4);
  CHECK(!w.put(1, 0));
  // Of two that one session has the second goes first.
  for (u64 i = 0; i <= StripeCache::kIdleSteps; ++i) w.kept.begin_step();
  REQUIRE(w.put(2, 0));
  REQUIRE(w.put(2, 1));
  CHECK(w.n_kept(0) == 2);
  w.kept.forget(*w.kept.piece(2, 1, 1));
  CHECK(w.n_kept(2) == 2);
}

}  // namespace
}  // namespace tarn::kv::stripe_cache_test
