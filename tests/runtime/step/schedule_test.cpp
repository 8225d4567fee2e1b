// Goal    a step has the rows that schedule.h promises: single rows first, prompts in turn, never
//         more than fit, nobody who waits.
// Method  a table of sessions that are ready, and the slices that come out; then a life of random
//         sessions, against the invariants, in which each prompt is served.
#include "runtime/step/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::step {
namespace {

constexpr RunKind kPrefill = RunKind::prefill, kFirst = RunKind::first, kDecode = RunKind::decode;

struct Rows {
  u32 session, n_rows;
  bool operator==(const Rows&) const = default;
};

struct Case {
  const char* name;
  std::vector<Ready> ready;
  u32 rows_max;
  u32 next_prompt;
  std::vector<Rows> slices;
  u32 next_after;
};

const Case kCases[] = {
    {"nobody is ready", {}, 8, 3, {}, 3},
    {"one prompt, shorter than a step", {{1, kPrefill, 5}}, 8, 0, {{1, 5}}, 2},
    {"one prompt, longer", {{1, kPrefill, 50}}, 8, 0, {{1, 8}}, 2},
    {"single rows come first, by session",
     {{0, kPrefill, 50}, {2, kDecode, 1}, {5, kFirst, 1}},
     8,
     0,
     {{2, 1}, {5, 1}, {0, 6}},
     1},
    {"the prompt whose turn it is comes first",
     {{0, kPrefill, 3}, {1, kPrefill, 3}, {4, kPrefill, 50}},
     8,
     1,
     {{1, 3}, {4, 5}},
     5},
    {"the turn goes round",
     {{0, kPrefill, 3}, {1, kPrefill, 3}, {4, kPrefill, 3}},
     8,
     2,
     {{4, 3}, {0, 3}, {1, 2}},
     2},
    {"a turn behind the last session begins with the first",
     {{0, kPrefill, 3}, {1, kPrefill, 3}},
     4,
     2,
     {{0, 3}, {1, 1}},
     2},
    {"who waits has no row, and keeps no turn",
     {{0, kDecode, 1, true, true}, {1, kDecode, 1, true}, {2, kPrefill, 9, false, true}},
     8,
     0,
     {{1, 1}},
     0},
    {"single rows fill the step",
     {{0, kDecode, 1}, {1, kPrefill, 9}, {2, kDecode, 1}, {3, kDecode, 1}},
     2,
     1,
     {{0, 1}, {2, 1}},
     1},
};

TEST_CASE("the rows of a step") {
  std::array<Slice, 12> slices_memory;
  Schedule out{.slices = slices_memory};
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    out.next_prompt = c.next_prompt;
    schedule(c.ready, c.rows_max, &out);
    std::vector<Rows> slices;
    for (u32 i = 0; i < out.n_slices; ++i) {
      const Slice& slice = out.slices[i];
      slices.push_back({slice.session, slice.n_rows});
      const auto from = std::ranges::find(c.ready, slice.session, &Ready::session);
      REQUIRE(from != c.ready.end());
      CHECK(slice.kind == from->kind);
      CHECK(slice.is_generated == from->is_generated);
    }
    CHECK(slices == c.slices);
    CHECK(out.next_prompt == c.next_after);
  }
}

TEST_CASE("a step never has more rows than fit, and every prompt has its turn") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  std::array<Slice, 12> slices_memory;
  Schedule out{.slices = slices_memory};
  for (u32 life = 0; life < 200; ++life) {
    const u32 n = 1 + static_cast<u32>(random.below(12));
    const u32 rows_max = n + static_cast<u32>(random.below(40));
    std::vector<u32> unserved(n, 0);  // steps in which a ready prompt had no rows
    for (u32 step = 0; step < 50; ++step) {
      std::vector<Ready> ready;
      for (u32 session = 0; session < n; ++session) {
        if (random.below(4) == 0) continue;
        Ready each{.session = session, .waits = random.below(8) == 0};
        each.kind = static_cast<RunKind>(random.below(3));
        each.n_rows = each.kind == kPrefill ? 1 + static_cast<u32>(random.below(60)) : 1;
        ready.push_back(each);
      }
      schedule(ready, rows_max, &out);
      u32 n_rows = 0;
      std::vector<u32> served(n, 0);
      for (u32 i = 0; i < out.n_slices; ++i) {
        CHECK(served[out.slices[i].session]++ == 0);
        n_rows += out.slices[i].n_rows;
      }
      CHECK(n_rows <= rows_max);
      std::vector<u32> before(n, 0);  // of prompts that were ready all the time
      std::swap(before, unserved);
      for (const Ready& each : ready) {
        if (each.waits) CHECK(served[each.session] == 0);
        if (!each.waits && each.kind != kPrefill) CHECK(served[each.session] == 1);
        if (each.waits || each.kind != kPrefill) continue;
        if (served[each.session] == 0) unserved[each.session] = before[each.session] + 1;
        CHECK(unserved[each.session] <= n);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::step
