// Goal    run slots are given as admission.h promises: by priority, tenant and cached prefix, no
//         session is passed more than kOvertakenMax times, and no chain of deferrals starves one.
// Method  tables of waiting sessions; the rule of deferral on token ids; then random queues to
//         their end.
#include "runtime/step/admission.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::step::admission_test {
namespace {

constexpr Priority kInteractive = Priority::interactive, kBackground = Priority::background;
constexpr u32 kTenants = 4;

struct Tenants {
  Tenants() { shares.init(accounts); }  // the turn is tenant 0's: tenant 1 comes next
  std::array<ShareRing::Account, kTenants * Shares::kAccounts> accounts;
  Shares shares;
};

struct Case {
  const char* name;
  std::vector<Waiting> waiting;  // session, tenant, priority, order, cached, overtaken, deferred
  std::vector<u32> n_running;
  u32 running_max;
  std::optional<u32> session;
};

constexpr u32 kPassed = kOvertakenMax;

const Case kCases[] = {
    {"nobody waits", {}, {0, 0, 0, 0}, 8, {}},
    {"by arrival", {{5, 0, kInteractive, 2}, {6, 0, kInteractive, 1}}, {1, 0, 0, 0}, 8, 6},
    {"no run slot", {{5, 0, kInteractive, 2}}, {1, 0, 7, 0}, 8, {}},
    {"the last run slot", {{5, 0, kInteractive, 2}}, {1, 0, 6, 0}, 8, 5},
    {"a tenant of which nothing runs has one run slot more",
     {{5, 0, kInteractive, 1}, {6, 1, kInteractive, 2}},
     {1, 0, 7, 0},
     8,
     6},
    {"so has its background session", {{6, 1, kBackground, 2}}, {8, 0, 0, 0}, 8, 6},
    {"interactive before background, whichever tenant",
     {{5, 0, kInteractive, 2}, {6, 1, kBackground, 1, 99}},
     {3, 0, 0, 0},
     8,
     5},
    {"a tenant with fewer running sessions first",
     {{5, 1, kInteractive, 1, 99}, {6, 0, kInteractive, 2}},
     {1, 2, 0, 0},
     8,
     6},
    {"of two with as many the one whose turn comes next",
     {{5, 0, kInteractive, 1}, {6, 3, kInteractive, 2}, {7, 2, kInteractive, 3}},
     {1, 1, 1, 1},
     8,
     7},
    {"within a tenant the longest cached prefix",
     {{5, 0, kInteractive, 1, 32}, {6, 0, kInteractive, 2, 64}, {7, 0, kInteractive, 3, 64}},
     {0, 0, 0, 0},
     8,
     6},
    {"not before one that was passed often enough",
     {{5, 0, kInteractive, 1, 0, kPassed - 1},
      {6, 0, kInteractive, 3, 64},
      {7, 0, kInteractive, 2, 0, kPassed}},
     {0, 0, 0, 0},
     8,
     7},
    {"of two such by arrival, whatever is cached",
     {{5, 0, kInteractive, 3, 99, kPassed}, {7, 0, kInteractive, 2, 0, kPassed}},
     {0, 0, 0, 0},
     8,
     7},
    {"a deferred one waits",
     {{5, 0, kInteractive, 1, 0, 0, true}, {6, 0, kInteractive, 2}},
     {1, 0, 0, 0},
     8,
     6},
    {"alone, too", {{5, 0, kInteractive, 1, 0, kPassed - 1, true}}, {1, 0, 0, 0}, 8, {}},
    {"but not when it was passed often enough",
     {{5, 0, kInteractive, 1, 0, kPassed, true}, {6, 0, kInteractive, 2, 64}},
     {1, 0, 0, 0},
     8,
     5},
};

TEST_CASE("the next run slot") {
  const Tenants tenants;
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    const std::optional<u32> idx =
        next_admitted(c.waiting, c.n_running, c.running_max, tenants.shares);
    REQUIRE(idx.has_value() == c.session.has_value());
    if (idx) CHECK(c.waiting[*idx].session == *c.session);
  }
}

TEST_CASE("those are passed who came before, of the same tenant and priority") {
  std::vector<Waiting> waiting = {{0, 0, kInteractive, 1}, {1, 0, kInteractive, 3},
                                  {2, 0, kInteractive, 5}, {3, 1, kInteractive, 1},
                                  {4, 0, kBackground, 1},  {5, 0, kInteractive, 2, 0, 4, true}};
  give_run_slot(waiting, 1);
  constexpr std::array<u32, 6> kOvertaken = {1, 0, 0, 0, 0, 5};
  for (const Waiting& each : waiting) CHECK(each.n_overtaken == kOvertaken[each.session]);
}

struct Deferral {
  const char* name;
  u32 n_common;  // tokens that both prompts begin with
  u32 n_waiting, n_running;
  u32 n_cached, n_computed;
  Priority waiting, running;
  bool is_deferred;
};

// Pages of 16 tokens.
constexpr Deferral kDeferrals[] = {
    {"two pages to come", 32, 40, 40, 0, 0, kInteractive, kInteractive, true},
    {"less than a page in common", 15, 40, 40, 0, 0, kInteractive, kInteractive, false},
    {"a page in common", 16, 40, 40, 0, 0, kInteractive, kInteractive, true},
    {"which is there", 16, 40, 40, 16, 0, kInteractive, kInteractive, false},
    {"which is computed, and will be found", 16, 40, 40, 0, 16, kInteractive, kInteractive, false},
    {"which is half done", 16, 40, 40, 0, 8, kInteractive, kInteractive, true},
    {"the second page is to come", 32, 40, 40, 16, 16, kInteractive, kInteractive, true},
    {"the running one is behind, and will pass", 32, 40, 40, 16, 0, kInteractive, kInteractive,
     true},
    {"the same prompt: its last row is its own", 32, 32, 32, 0, 0, kInteractive, kInteractive,
     true},
    {"the same prompt, a page and a token", 17, 17, 17, 0, 0, kInteractive, kInteractive, true},
    {"the same prompt of one page", 16, 16, 16, 0, 0, kInteractive, kInteractive, false},
    {"an empty prompt", 0, 0, 40, 0, 0, kInteractive, kInteractive, false},
    {"a background prompt may stand still", 32, 40, 40, 0, 0, kInteractive, kBackground, false},
    {"another one waits for it", 32, 40, 40, 0, 0, kBackground, kBackground, true},
    {"a background prompt waits for an interactive one", 32, 40, 40, 0, 0, kBackground,
     kInteractive, true},
};

TEST_CASE("who is deferred") {
  for (const Deferral& c : kDeferrals) {
    CAPTURE(std::string(c.name));
    std::vector<u32> waiting(c.n_waiting, 1), running(c.n_running, 2);
    std::fill_n(waiting.begin(), c.n_common, 7);
    std::fill_n(running.begin(), c.n_common, 7);
    CHECK(is_deferred({waiting, c.n_cached, c.waiting}, {running, c.n_computed, c.running}, 16) ==
          c.is_deferred);
  }
}

TEST_CASE("the wait follows from the mean time that a run slot is held") {
  RunSlotTime time;
  CHECK(time.wait_estimate_ns(3, 4) == 0);
  time.observe(8'000);
  CHECK(time.wait_estimate_ns(1, 4) == 2'000);
  CHECK(time.wait_estimate_ns(6, 4) == 12'000);
  for (u32 i = 0; i < 200; ++i) time.observe(16'000);
  CHECK(time.wait_estimate_ns(1, 4) > 3'900);
  CHECK(time.wait_estimate_ns(1, 4) <= 4'000);
  RunSlotTime short_time;
  short_time.observe(3);  // whole nanoseconds do not make it 0
  CHECK(short_time.wait_estimate_ns(1, 1) == 3);
}

// New sessions of all kinds come as long as the queue is watched; a few of them are deferred at any
// time, the first of each tenant always: by a chain of prompts that never ends.
TEST_CASE("no session is passed more than kOvertakenMax times, and every session gets a run slot") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  u32 most = 0;
  for (u32 life = 0; life < 100; ++life) {
    const Tenants tenants;
    const u32 running_max = 1 + static_cast<u32>(random.below(6));
    const u64 n_all = 20 + random.below(60);
    std::vector<Waiting> waiting;
    std::vector<u32> running;  // tenants
    std::vector<u32> n_running(kTenants, 0);
    u64 order = 0, n_admitted = 0;
    for (u32 round = 0; n_admitted < n_all; ++round) {
      REQUIRE(round < 40 * n_all);
      while (order < n_all && waiting.size() < 20 && random.below(3) != 0) {
        waiting.push_back({.session = static_cast<u32>(order),
                           .tenant = static_cast<u32>(random.below(kTenants)),
                           .priority = random.below(4) == 0 ? kBackground : kInteractive,
                           .order = order,
                           .n_cached = static_cast<u32>(random.below(9) * 64)});
        ++order;
      }
      for (Waiting& each : waiting)
        each.is_deferred = order < n_all && (each.order % 7 == 0 || random.below(4) == 0);
      while (const auto idx = next_admitted(waiting, n_running, running_max, tenants.shares)) {
        const u32 tenant = waiting[*idx].tenant;
        if (running.size() >= running_max) CHECK(n_running[tenant] == 0);
        give_run_slot(waiting, *idx);
        waiting.erase(waiting.begin() + *idx);
        running.push_back(tenant);
        ++n_running[tenant];
        ++n_admitted;
      }
      CHECK(running.size() <= running_max + kTenants - 1);
      for (const Waiting& each : waiting) most = std::max(most, each.n_overtaken);
      if (running.empty()) continue;
      const u64 ended = random.below(running.size());
      --n_running[running[ended]];
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(ended));
    }
  }
  CHECK(most == kOvertakenMax);
}

}  // namespace
}  // namespace tarn::step::admission_test
