// Goal    every method yields the slots that its rule says: ascending, each once, sinks and local
//         among them, the middle's k best; the evicted token is a candidate in the step that evicts
//         it.
// Method  brute-force references in f64 and by sort; hand-made needles; k from 0 past the middle;
//         queries of 1 and of 4 heads; scratch of exactly the asked size.
#include "runtime/method/selection.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "runtime/lab/methods.h"
#include "runtime/method/read/quest.h"
#include "runtime/method/read/window.h"
#include "tests/runtime/method/synthetic_keys.h"

namespace tarn::method::selection_test {
namespace {

using kernels::CpuTable;
using lab::select_oracle;
using lab::select_random;
using test::Index;
using test::Keys;
using test::run_selection;

constexpr u32 kDim = 64, kTokens = 1000, kSinks = 32, kLocal = 64;

PqShape shape_of_test() {
  return {.head_dim = kDim, .n_subspaces = 2, .code_bits = 6, .capacity_tokens = kTokens};
}

SelectionShape scratch_shape(u32 n_heads, u32 n_middle) {
  return {.n_group_heads = n_heads, .lut_elems = 128 + kDim, .middle_tokens_max = n_middle};
}

std::vector<f32> unit_rows(test::Random& random, u32 n) {
  std::vector<f32> rows(u64{n} * kDim);
  for (u32 t = 0; t < n; ++t) {
    f32 norm = 0.0f;
    for (u32 i = 0; i < kDim; ++i) {
      rows[u64{t} * kDim + i] = random.normal();
      norm += rows[u64{t} * kDim + i] * rows[u64{t} * kDim + i];
    }
    for (u32 i = 0; i < kDim; ++i) rows[u64{t} * kDim + i] /= std::sqrt(norm);
  }
  return rows;
}

// Makes row t of `rows` eight times the query's direction.
void plant(std::vector<f32>& rows, u32 t, const std::vector<f32>& q) {
  f32 norm = 0.0f;
  for (u32 i = 0; i < kDim; ++i) norm += q[i] * q[i];
  for (u32 i = 0; i < kDim; ++i) rows[u64{t} * kDim + i] = 8.0f * q[i] / std::sqrt(norm);
}

// Ascending, once each, with all sinks and all local slots, `n` in all.
void audit(const std::vector<u32>& slots, const TokenRanges& s, u64 n) {
  REQUIRE(slots.size() == n);
  REQUIRE(std::is_sorted(slots.begin(), slots.end()));
  REQUIRE(std::adjacent_find(slots.begin(), slots.end()) == slots.end());
  for (u32 slot = 0; slot < s.n_tokens; ++slot) {
    if (slot >= s.middle_begin && slot < s.middle_end) continue;
    REQUIRE(std::binary_search(slots.begin(), slots.end(), slot));
  }
  if (!slots.empty()) REQUIRE(slots.back() < s.n_tokens);
}

// Quest's index of the first tokens of these keys.
struct Quest {
  test::Region region{QuestReader::region_bytes({}, {kDim, 0}, kTokens)};
  QuestReader reader{{.config = {},
                      .keys = {kDim, 0},
                      .capacity_tokens = kTokens,
                      .head = 0,
                      .region = region.span()}};
  void take_in(const CpuTable& table, const Keys& keys, u32 slot_end) {
    std::vector<f32> row(kDim);
    reader.take_in(table, keys.view(), slot_end, std::as_writable_bytes(std::span(row)));
  }
  u32 choose(const SelectionArgs& args) const { return reader.choose(args, {}); }
};

u32 select_window(const SelectionArgs& args) {
  return WindowReader({{}, {}, 0, 0, {}}).choose(args, {});
}

struct World {
  test::Random random{tarn::test::seed_from_environment()};
  test::Clusters clusters{random, kTokens, kDim, 80, 4, 0.5f};
  Keys keys{clusters.rows, kDim};
  TokenRanges ranges = method::token_ranges(kTokens, kSinks, kLocal);
  std::vector<f32> q;  // 4 heads
  World() {
    for (u32 h = 0; h < 4; ++h) {
      for (const f32 x : clusters.query(random)) q.push_back(x);
    }
  }
};

TEST_CASE("oracle takes the k best of the summed softmax of exact scores") {
  World world;
  CAPTURE(world.random.seed());
  const std::vector<f32> stored = world.keys.stored();
  const u32 n = world.ranges.n_middle();
  for (const u32 n_heads : {1u, 4u}) {
    std::vector<f64> weights(n);
    for (u32 h = 0; h < n_heads; ++h) {
      std::vector<f64> p(n);
      f64 z = 0.0;
      for (u32 t = 0; t < n; ++t) {
        f64 dot = 0.0;
        for (u32 i = 0; i < kDim; ++i) {
          dot += f64{world.q[u64{h} * kDim + i]} * f64{stored[u64{kSinks + t} * kDim + i]};
        }
        p[t] = std::exp(dot / 8);
        z += p[t];
      }
      for (u32 t = 0; t < n; ++t) weights[t] += p[t] / z;
    }
    for (const CpuTable& table : kernels::cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      for (const u32 k : {0u, 1u, 100u, n - 1, n, n + 5}) {
        CAPTURE(k);
        const std::vector<u32> slots = run_selection(
            table, {world.q.data(), n_heads, 0.125f}, world.ranges, k, scratch_shape(n_heads, n),
            [&](const SelectionArgs& args) { return select_oracle(args, world.keys.view()); });
        audit(slots, world.ranges, kSinks + kLocal + std::min(k, n));
        f64 worst_in = 1e30, best_out = 0.0;
        for (u32 t = 0; t < n; ++t) {
          const bool in = std::binary_search(slots.begin(), slots.end(), kSinks + t);
          (in ? worst_in : best_out) =
              in ? std::min(worst_in, weights[t]) : std::max(best_out, weights[t]);
        }
        CHECK(worst_in >= best_out * (1 - 1e-4));
      }
    }
  }
}

TEST_CASE("pq takes the k best of its own scores, the same on every ISA; all of them is dense") {
  World world;
  CAPTURE(world.random.seed());
  const u32 n = world.ranges.n_middle();
  for (const u32 n_heads : {1u, 4u}) {
    std::vector<u32> want;
    for (const CpuTable& table : kernels::cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      Index index(shape_of_test());
      index.pq.start(kSinks);
      index.train(table, world.keys, n, 5);
      const auto select = [&](u32 k, const std::vector<f32>& q) {
        return run_selection(table, {q.data(), n_heads, 0.125f}, world.ranges, k,
                             scratch_shape(n_heads, n),
                             [&](const SelectionArgs& args) { return index.pq.choose(args); });
      };
      for (const u32 k : {0u, 1u, 77u}) audit(select(k, world.q), world.ranges, 96 + k);
      const std::vector<u32> slots = select(77, world.q);
      if (want.empty()) want = slots;
      CHECK(slots == want);
      std::vector<u32> all(kTokens);
      std::iota(all.begin(), all.end(), 0u);
      CHECK(select(n, world.q) == all);
      if (n_heads == 4) {  // heads of a group may change places
        std::vector<f32> turned(world.q.begin() + kDim, world.q.end());
        turned.insert(turned.end(), world.q.begin(), world.q.begin() + kDim);
        CHECK(select(77, turned) == slots);
      }
    }
  }
}

TEST_CASE("the token that leaves the local window is fetched in that very step") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  const CpuTable& table = kernels::cpu_tables().back();
  u32 n_fetched = 0, n_alone = 0;
  for (u32 i = 0; i < 20; ++i) {
    std::vector<f32> q(kDim);
    for (f32& x : q) x = random.normal();
    std::vector<f32> rows = unit_rows(random, kTokens + 1);
    const TokenRanges before = token_ranges(kTokens, kSinks, kLocal);
    plant(rows, before.middle_end, q);  // the oldest local token
    const Keys keys(rows, kDim);
    Index index(shape_of_test());
    index.pq.start(kSinks);
    index.train(table, keys, before.n_middle(), 3);
    const TokenRanges now = token_ranges(kTokens + 1, kSinks, kLocal, before.middle_end);
    REQUIRE(now.middle_end == before.middle_end + 1);
    index.pq.take_in(table, keys.view(), now.middle_end, index.scratch.span());
    // It has the codes of the nearest centroids, and with them whoever has the same ones.
    const u32 needle = before.middle_end - kSinks;
    u32 n_same = 0;
    for (u32 t = 0; t <= needle; ++t) {
      n_same += index.pq.code(0, t) == index.pq.code(0, needle) &&
                index.pq.code(1, t) == index.pq.code(1, needle);
    }
    const std::vector<u32> slots =
        run_selection(table, {q.data(), 1, 0.125f}, now, n_same, scratch_shape(1, now.n_middle()),
                      [&](const SelectionArgs& args) { return index.pq.choose(args); });
    audit(slots, now, kSinks + kLocal + n_same);
    const bool is_fetched = slots[kSinks + n_same - 1] == before.middle_end;
    n_fetched += is_fetched;
    n_alone += is_fetched && n_same == 1;  // k = 1
  }
  // Now and then a centroid further away has the larger product.
  CHECK(n_fetched >= 17);
  CHECK(n_alone >= 5);
}

TEST_CASE("q heads of a group may change places, by every method") {
  World world;
  CAPTURE(world.random.seed());
  const u32 n = world.ranges.n_middle();
  const CpuTable& table = kernels::cpu_tables().back();
  Index index(shape_of_test());
  index.pq.start(kSinks);
  index.train(table, world.keys, n, 5);
  Quest quest;
  quest.take_in(table, world.keys, kTokens);
  const auto chosen = [&](const std::vector<f32>& q, auto select) {
    return run_selection(table, {q.data(), 4, 0.125f}, world.ranges, 96, scratch_shape(4, n),
                         select);
  };
  // From a rotation and a swap follow all orders.
  std::vector<f32> turned(world.q.begin() + kDim, world.q.end());
  turned.insert(turned.end(), world.q.begin(), world.q.begin() + kDim);
  std::vector<f32> swapped = world.q;
  std::swap_ranges(swapped.begin(), swapped.begin() + kDim, swapped.begin() + 2 * kDim);
  const auto check = [&](auto select) {
    const std::vector<u32> want = chosen(world.q, select);
    CHECK(chosen(turned, select) == want);
    CHECK(chosen(swapped, select) == want);
    // One query for all of them chooses otherwise, or the group had no say.
    std::vector<f32> one;
    for (u32 h = 0; h < 4; ++h) one.insert(one.end(), world.q.begin(), world.q.begin() + kDim);
    CHECK_FALSE(chosen(one, select) == want);
  };
  check([&](const SelectionArgs& args) { return select_oracle(args, world.keys.view()); });
  check([&](const SelectionArgs& args) { return index.pq.choose(args); });
  check([&](const SelectionArgs& args) { return quest.choose(args); });
}

TEST_CASE("keys that codes hold without loss are chosen as exact scores choose them") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  // 8 sub-vectors in each half, integers, so that every sum is exact; each row is some pair, and
  // each of them is among the 64 rows that training begins with.
  const TokenRanges s = token_ranges(kTokens, kSinks, kLocal);
  std::vector<f32> parts(u64{2} * 8 * (kDim / 2));
  for (f32& x : parts) x = static_cast<f32>(random.below(9)) - 4.0f;
  const PqShape shape{
      .head_dim = kDim, .n_subspaces = 2, .code_bits = 6, .capacity_tokens = kTokens};
  std::vector<f32> rows(u64{kTokens} * kDim);
  for (u32 t = 0; t < kTokens; ++t) {
    for (u32 half = 0; half < 2; ++half) {
      const u64 part = (u64{half} * 8 + (half == 0 ? t * 5 : t / 8) % 8) * (kDim / 2);
      for (u32 i = 0; i < kDim / 2; ++i) {
        rows[u64{t} * kDim + half * (kDim / 2) + i] = parts[part + i];
      }
    }
  }
  const Keys keys(rows, kDim);
  const CpuTable& table = kernels::cpu_tables().back();
  Index index(shape);
  index.pq.start(kSinks);
  index.train(table, keys, s.n_middle(), 2);
  std::vector<f32> key(kDim);
  for (u32 t = 0; t < s.n_middle(); ++t) {
    test::reconstruct(index.pq, t, key.data());
    for (u32 i = 0; i < kDim; ++i) REQUIRE(key[i] == rows[u64{kSinks + t} * kDim + i]);
  }
  std::vector<f32> q(u64{2} * kDim);
  for (f32& x : q) x = static_cast<f32>(random.below(5)) - 2.0f;
  for (const u32 n_heads : {1u, 2u}) {
    for (const u32 k : {1u, 10u, 100u, s.n_middle()}) {
      CAPTURE(n_heads);
      CAPTURE(k);
      const auto chosen = [&](auto select) {
        return run_selection(table, {q.data(), n_heads, 0.125f}, s, k,
                             scratch_shape(n_heads, s.n_middle()), select);
      };
      CHECK(chosen([&](const SelectionArgs& args) { return index.pq.choose(args); }) ==
            chosen([&](const SelectionArgs& args) { return select_oracle(args, keys.view()); }));
    }
  }
}

TEST_CASE("a needle is in the smallest choice of every index of keys, and never in a window") {
  test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<f32> q(kDim);
  for (f32& x : q) x = random.normal();
  std::vector<f32> rows = unit_rows(random, kTokens);
  plant(rows, 777, q);
  const Keys keys(rows, kDim);
  const TokenRanges s = token_ranges(kTokens, kSinks, kLocal);
  const CpuTable& table = kernels::cpu_tables().back();
  const auto has_needle = [&](u32 k, auto select) {
    const std::vector<u32> slots =
        run_selection(table, {q.data(), 1, 0.125f}, s, k, scratch_shape(1, s.n_middle()), select);
    audit(slots, s, kSinks + kLocal + k);
    return std::binary_search(slots.begin(), slots.end(), 777u);
  };
  CHECK(has_needle(1, [&](const SelectionArgs& args) { return select_oracle(args, keys.view()); }));
  Quest quest;
  quest.take_in(table, keys, 500);
  quest.take_in(table, keys, kTokens);
  CHECK(quest.region.intact());
  CHECK(has_needle(16, [&](const SelectionArgs& args) { return quest.choose(args); }));
  Index index(shape_of_test());
  index.pq.start(kSinks);
  index.train(table, keys, s.n_middle(), 10);
  const u32 needle = 777 - kSinks;
  u32 n_same = 0;  // rows with the needle's codes
  for (u32 t = 0; t < s.n_middle(); ++t) {
    if (index.pq.code(0, t) != index.pq.code(0, needle)) continue;
    if (index.pq.code(1, t) == index.pq.code(1, needle)) n_same += 1;
  }
  CHECK(has_needle(n_same, [&](const SelectionArgs& args) { return index.pq.choose(args); }));
  CHECK_FALSE(has_needle(100, [](const SelectionArgs& args) { return select_window(args); }));
  CHECK(has_needle(200, [](const SelectionArgs& args) { return select_window(args); }));
}

TEST_CASE(
    "quest's bound is above every score of its page, and pages cut by the middle's ends fit") {
  World world;
  CAPTURE(world.random.seed());
  const CpuTable& table = kernels::cpu_tables().back();
  Quest quest;
  quest.take_in(table, world.keys, kTokens);
  const std::vector<f32> stored = world.keys.stored();
  for (u32 t = 0; t < kTokens; ++t) {
    f64 dot = 0.0;
    for (u32 i = 0; i < kDim; ++i) dot += f64{world.q[i]} * f64{stored[u64{t} * kDim + i]};
    REQUIRE(f64{quest.reader.bound(t / 16, world.q.data())} >= dot - 1e-3);
  }
  for (const u32 n_sinks : {0u, 5u, 32u}) {
    for (const u32 n : {kTokens, n_sinks + 3, n_sinks + 65}) {
      const TokenRanges s = token_ranges(n, n_sinks, 2);
      const std::vector<u32> slots =
          run_selection(table, {world.q.data(), 4, 0.125f}, s, 48, scratch_shape(4, s.n_middle()),
                        [&](const SelectionArgs& args) { return quest.choose(args); });
      audit(slots, s, slots.size());
      CHECK(slots.size() <= s.n_sinks() + s.n_local() + 48);
      CHECK(slots.size() + 32 >= std::min(n, s.n_sinks() + s.n_local() + 48));
    }
  }
}

TEST_CASE("random repeats with its seed, differs with another, and favours no place") {
  const TokenRanges s = token_ranges(kTokens, kSinks, kLocal);
  const CpuTable& table = kernels::cpu_tables().back();
  const auto select = [&](u64 seed) {
    return run_selection(table, {nullptr, 1, 0.0f}, s, 100, scratch_shape(1, s.n_middle()),
                         [&](const SelectionArgs& args) { return select_random(args, seed); });
  };
  audit(select(1), s, kSinks + kLocal + 100);
  CHECK(select(1) == select(1));
  CHECK(select(1) != select(2));
  std::vector<u32> counts(kTokens);
  for (u64 seed = 0; seed < 1000; ++seed) {
    for (const u32 slot : select(seed)) counts[slot] += 1;
  }
  for (u32 slot = s.middle_begin; slot < s.middle_end; ++slot) {  // 110.6 +- 9.9
    REQUIRE(counts[slot] > 60);
    REQUIRE(counts[slot] < 165);
  }
}

}  // namespace
}  // namespace tarn::method::selection_test
