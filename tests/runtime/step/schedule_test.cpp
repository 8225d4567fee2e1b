// Goal    a step has the rows that schedule.h promises: single rows first, interactive work before
//         background, prompts by shares and in turn, never more than fit, nobody who waits.
// Method  a table of sessions that are ready, and the slices that come out; then a life of random
//         sessions, against the invariants, in which each prompt of a priority is served.
#include "runtime/step/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::step::schedule_test {
namespace {

constexpr RunKind kPrefill = RunKind::prefill, kFirst = RunKind::first, kDecode = RunKind::decode;
constexpr Priority kInteractive = Priority::interactive, kBackground = Priority::background;
constexpr u32 kTenants = 4;
constexpr u32 kQ = ShareRing::kQuantum;

struct Memory {
  Memory() { shares.init(accounts); }
  std::array<Slice, 12> slices;
  std::array<ShareRing::Account, kTenants * Shares::kAccounts> accounts;
  Shares shares;
  Schedule out{.slices = slices};
};

struct Rows {
  u32 session, n_rows;
  bool operator==(const Rows&) const = default;
};

Ready of_tenant(u32 tenant, u32 session, RunKind kind, u32 n_rows) {
  return {.session = session, .kind = kind, .n_rows = n_rows, .tenant = tenant};
}
Ready behind(u32 session, RunKind kind, u32 n_rows) {
  return {.session = session, .kind = kind, .n_rows = n_rows, .priority = kBackground};
}

std::vector<Rows> slices_of(const std::vector<Ready>& ready, const StepLimits& limits,
                            Memory& memory) {
  schedule(ready, limits, memory.shares, &memory.out);
  std::vector<Rows> slices;
  for (u32 i = 0; i < memory.out.n_slices; ++i) {
    const Slice& slice = memory.out.slices[i];
    slices.push_back({slice.session, slice.n_rows});
    const auto from = std::ranges::find(ready, slice.session, &Ready::session);
    REQUIRE(from != ready.end());
    CHECK(slice.kind == from->kind);
    CHECK(slice.is_generated == from->is_generated);
  }
  return slices;
}

// Of one tenant, so nothing is shared.
struct Case {
  const char* name;
  std::vector<Ready> ready;
  StepLimits limits;
  u32 next_prompt;
  std::vector<Rows> slices;
  u32 next_after;
};

const Case kCases[] = {
    {"nobody is ready", {}, {8, 8}, 3, {}, 3},
    {"one prompt, shorter than a step", {{1, kPrefill, 5}}, {8, 8}, 0, {{1, 5}}, 2},
    {"one prompt, longer", {{1, kPrefill, 50}}, {8, 8}, 0, {{1, 8}}, 2},
    {"one prompt, longer than it may", {{1, kPrefill, 50}}, {20, 8}, 0, {{1, 8}}, 2},
    {"one prompt, longer than a quantum", {{1, kPrefill, 500}}, {400, 400}, 0, {{1, 400}}, 2},
    {"single rows come first, by session",
     {{0, kPrefill, 50}, {2, kDecode, 1}, {5, kFirst, 1}},
     {8, 8},
     0,
     {{2, 1}, {5, 1}, {0, 6}},
     1},
    {"the limit of prompts does not count single rows",
     {{0, kPrefill, 50}, {2, kDecode, 1}, {5, kFirst, 1}},
     {8, 3},
     0,
     {{2, 1}, {5, 1}, {0, 3}},
     1},
    {"the prompt whose turn it is comes first",
     {{0, kPrefill, 3}, {1, kPrefill, 3}, {4, kPrefill, 50}},
     {8, 8},
     1,
     {{1, 3}, {4, 5}},
     5},
    {"the turn goes round",
     {{0, kPrefill, 3}, {1, kPrefill, 3}, {4, kPrefill, 3}},
     {8, 8},
     2,
     {{4, 3}, {0, 3}, {1, 2}},
     2},
    {"a turn behind the last session begins with the first",
     {{0, kPrefill, 3}, {1, kPrefill, 3}},
     {4, 4},
     2,
     {{0, 3}, {1, 1}},
     2},
    {"who waits has no row, and keeps no turn",
     {{0, kDecode, 1, true, true}, {1, kDecode, 1, true}, {2, kPrefill, 9, false, true}},
     {8, 8},
     0,
     {{1, 1}},
     0},
    {"single rows fill the step",
     {{0, kDecode, 1}, {1, kPrefill, 9}, {2, kDecode, 1}, {3, kDecode, 1}},
     {2, 2},
     1,
     {{0, 1}, {2, 1}},
     1},
    {"single rows of background sessions come behind, and before prompts",
     {behind(0, kDecode, 1), {1, kDecode, 1}, {2, kPrefill, 9}, behind(3, kFirst, 1)},
     {4, 4},
     0,
     {{1, 1}, {0, 1}, {3, 1}, {2, 1}},
     3},
    {"a background prompt has what interactive ones leave",
     {behind(0, kPrefill, 50), {1, kPrefill, 5}},
     {20, 8},
     0,
     {{1, 5}, {0, 3}},
     2},
    {"and nothing where they leave nothing",
     {behind(0, kPrefill, 50), {1, kPrefill, 9}},
     {20, 8},
     0,
     {{1, 8}},
     2},
};

TEST_CASE("the rows of a step") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    Memory memory;
    ShareRing::Account& account = memory.shares.of(kInteractive).accounts()[0];
    account.next_session = c.next_prompt;
    CHECK(slices_of(c.ready, c.limits, memory) == c.slices);
    CHECK(account.next_session == c.next_after);
  }
}

struct Steps {
  const char* name;
  std::vector<Ready> ready;  // in each step
  StepLimits limits;
  std::vector<std::vector<Rows>> slices;
};

const Steps kSteps[] = {
    {"a short prompt takes turns with a long one",
     {{0, kPrefill, 999}, {1, kPrefill, 999}},
     {8, 8},
     {{{0, 8}}, {{1, 8}}, {{0, 8}}}},
    {"single rows that do not all fit take turns",
     {{0, kDecode, 1}, {1, kDecode, 1}, {2, kDecode, 1}},
     {2, 2},
     {{{0, 1}, {1, 1}}, {{2, 1}, {0, 1}}, {{1, 1}, {2, 1}}, {{0, 1}, {1, 1}}}},
    {"those of background sessions do so behind interactive ones",
     {behind(0, kDecode, 1), {1, kDecode, 1}, behind(2, kDecode, 1)},
     {2, 2},
     {{{1, 1}, {0, 1}}, {{1, 1}, {2, 1}}, {{1, 1}, {0, 1}}}},
    {"two tenants, quantum by quantum: one slice each, whatever the number of sessions",
     {of_tenant(1, 0, kPrefill, 999), of_tenant(1, 1, kPrefill, 999),
      of_tenant(2, 2, kPrefill, 999)},
     {4 * kQ, 4 * kQ},
     {{{0, 2 * kQ}, {2, 2 * kQ}}, {{1, 2 * kQ}, {2, 2 * kQ}}, {{0, 2 * kQ}, {2, 2 * kQ}}}},
    {"answers are charged",
     {of_tenant(1, 0, kDecode, 1), of_tenant(1, 1, kDecode, 1), of_tenant(1, 2, kPrefill, 999),
      of_tenant(2, 3, kPrefill, 999)},
     {2 * kQ, 2 * kQ},
     {{{0, 1}, {1, 1}, {2, kQ - 2}, {3, kQ}}, {{0, 1}, {1, 1}, {2, kQ - 2}, {3, kQ}}}},
};

TEST_CASE("the rows of several steps") {
  for (const Steps& c : kSteps) {
    CAPTURE(std::string(c.name));
    Memory memory;
    for (const std::vector<Rows>& slices : c.slices)
      CHECK(slices_of(c.ready, c.limits, memory) == slices);
  }
}

TEST_CASE("a step never has more rows than fit, and every prompt has its turn") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 life = 0; life < 200; ++life) {
    Memory memory;
    const u32 n = 1 + static_cast<u32>(random.below(12));
    const u32 rows_max = n + static_cast<u32>(random.below(40));
    const StepLimits limits{rows_max, 1 + static_cast<u32>(random.below(rows_max))};
    std::vector<u32> tenants(n), unserved(n, 0);  // steps in which a ready prompt had no rows
    for (u32& tenant : tenants) tenant = static_cast<u32>(random.below(kTenants));
    for (u32 step = 0; step < 50; ++step) {
      std::vector<Ready> ready;
      u32 n_wanted = 0, n_single = 0;
      for (u32 session = 0; session < n; ++session) {
        if (random.below(4) == 0) continue;
        Ready each{.session = session, .waits = random.below(8) == 0, .tenant = tenants[session]};
        each.kind = static_cast<RunKind>(random.below(3));
        each.n_rows = each.kind == kPrefill ? 1 + static_cast<u32>(random.below(60)) : 1;
        each.priority = session % 3 == 0 ? kBackground : kInteractive;
        ready.push_back(each);
        if (!each.waits) (each.kind == kPrefill ? n_wanted : n_single) += each.n_rows;
      }
      std::vector<u32> served(n, 0);
      u32 n_rows = 0;
      for (const Rows& slice : slices_of(ready, limits, memory)) {
        CHECK(served[slice.session] == 0);
        CHECK(slice.n_rows > 0);
        served[slice.session] = slice.n_rows;
        n_rows += slice.n_rows;
      }
      // No row stays free.
      CHECK(n_rows == n_single + std::min({n_wanted, limits.prompt_rows_max, rows_max - n_single}));
      u32 n_left = n_rows - n_single;
      bool is_interactive_short = false;
      std::vector<u32> before(n, 0);  // of prompts that were ready all the time
      std::swap(before, unserved);
      for (const Ready& each : ready) {
        const u32 n_served = served[each.session];
        CHECK(n_served <= (each.waits ? 0 : each.n_rows));
        if (!each.waits && each.kind != kPrefill) CHECK(n_served == 1);
        if (each.waits || each.kind != kPrefill || each.priority != kInteractive) continue;
        is_interactive_short = is_interactive_short || n_served < each.n_rows;
        n_left -= n_served;
        if (n_served == 0 && n_rows > n_single) unserved[each.session] = before[each.session] + 1;
        // Turns of its tenant's other prompts, which last for a quantum each of the others.
        CHECK(unserved[each.session] <= n * (1 + (kTenants - 1) * kQ));
      }
      if (is_interactive_short) CHECK(n_left == 0);  // nothing for background prompts
    }
  }
}

TEST_CASE("every prompt has its turn where each step has one row for prompts") {
  Memory memory;
  const std::vector<Ready> ready = {of_tenant(0, 0, kPrefill, 999), of_tenant(1, 1, kPrefill, 999),
                                    of_tenant(1, 2, kPrefill, 999), of_tenant(1, 3, kPrefill, 999)};
  std::vector<u32> n_rows(4, 0);
  constexpr u32 kRounds = 3;
  for (u32 step = 0; step < kRounds * 2 * kQ; ++step) {
    for (const Rows& slice : slices_of(ready, {1, 1}, memory))
      n_rows[slice.session] += slice.n_rows;
  }
  CHECK(n_rows[0] == kRounds * kQ);
  for (const u32 session : {1u, 2u, 3u}) CHECK(n_rows[session] == kRounds * kQ / 3);
}

}  // namespace
}  // namespace tarn::step::schedule_test
