// Goal    of placed tokens the share is computed whose V differs most, the earlier of equal ones,
//         over all chunks at once; every token between chunks is (METHODS 14.3, selection).
// Method  a table of small prompts; a sort as the oracle on random deviations with many ties.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/reuse/blend/row_choice.h"
#include "tests/support/seed.h"

namespace tarn::reuse::row_choice_test {
namespace {

std::vector<u32> chosen(std::vector<Chunk> chunks, std::vector<f32> deviation, f32 share) {
  for (Chunk& chunk : chunks) chunk.recompute = share;
  const u32 n = choose_rows(chunks, deviation);
  std::vector<u32> tokens;
  u32 n_placed = 0;
  for (u32 t = chunks.front().begin; t < chunks.back().end; ++t) {
    if (!is_chosen(deviation[t])) continue;
    tokens.push_back(t);
    n_placed += u32{std::ranges::any_of(
        chunks, [t](const Chunk& chunk) { return t >= chunk.begin && t < chunk.end; })};
  }
  CHECK(n == n_placed);
  return tokens;
}

}  // namespace

TEST_CASE("the largest deviations, the earlier of equal ones, and all between chunks") {
  using Tokens = std::vector<u32>;
  const std::vector<f32> deviation = {0, .1f, .9f, .2f, .8f, .05f};
  const std::vector<Chunk> one = {{.begin = 0, .end = 6}};
  CHECK(chosen(one, deviation, 0.34f) == Tokens{2, 4});
  CHECK(chosen(one, deviation, 0.0f).empty());
  CHECK(chosen(one, deviation, 0.16f).empty());
  CHECK(chosen(one, deviation, 0.17f) == Tokens{2});
  CHECK(chosen(one, deviation, 1.0f) == Tokens{0, 1, 2, 3, 4, 5});
  CHECK(chosen(one, {1, 1, 1, 1, 1, 1}, 0.5f) == Tokens{0, 1, 2});
  CHECK(chosen(one, {0, 0, 0, 0, 0, 0}, 0.5f) == Tokens{0, 1, 2});
  const f32 infinite = std::numeric_limits<f32>::infinity();
  CHECK(chosen(one, {0, infinite, 1, infinite, 2, infinite}, 0.5f) == Tokens{1, 3, 5});
  CHECK(chosen(one, {0, infinite, 1, infinite, 2, infinite}, 0.34f) == Tokens{1, 3});
  // One choice over both: the second has the larger ones.
  const std::vector<Chunk> two = {{.begin = 1, .end = 3}, {.begin = 4, .end = 6}};
  CHECK(chosen(two, {9, .1f, .2f, 9, .8f, .9f}, 0.5f) == Tokens{3, 4, 5});
  CHECK(chosen(two, {9, .1f, .2f, 9, .8f, .9f}, 0.0f) == Tokens{3});
}

TEST_CASE("as a sort has it") {
  const u64 seed = tarn::test::seed_from_environment();
  CAPTURE(seed);
  tarn::test::Random random(seed);
  for (int run = 0; run < 50; ++run) {
    const std::vector<Chunk> chunks = {{.begin = 5, .end = 70}, {.begin = 77, .end = 300}};
    std::vector<f32> deviation(300);
    for (f32& each : deviation) each = static_cast<f32>(random.below(40)) * 1e-3f;
    const f32 share = random.uniform(0, 1);
    std::vector<u32> order;
    for (u32 t = 5; t < 300; ++t) {
      if (t < 70 || t >= 77) order.push_back(t);
    }
    std::ranges::stable_sort(order, [&](u32 a, u32 b) { return deviation[a] > deviation[b]; });
    order.resize(static_cast<u32>(f64{share} * static_cast<f64>(order.size())));
    for (u32 t = 70; t < 77; ++t) order.push_back(t);
    std::ranges::sort(order);
    CHECK(chosen(chunks, deviation, share) == order);
  }
}

}  // namespace tarn::reuse::row_choice_test
