// Goal    tenants share the rows of prompts as shares.h promises: by tokens, answers charged, no
//         credit for idle time, a lone tenant never slowed, and a newcomer served within a quantum
//         of each other tenant.
// Method  tables of one step and of a turn; then random lives against the invariants and the bounds
//         of deficit round robin.
#include "runtime/step/shares.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::step::shares_test {
namespace {

constexpr i32 kQ = ShareRing::kQuantum, kDebt = ShareRing::kDebtMax;

struct Ring {
  explicit Ring(u64 n_tenants) : accounts(n_tenants) { ring.init(accounts); }
  // One step; returns what each tenant got.
  std::vector<u32> step(const std::vector<u32>& answers, const std::vector<u32>& prompts,
                        u32 n_rows) {
    ring.begin_step();
    for (u64 i = 0; i < accounts.size(); ++i) {
      accounts[i].n_charged = answers[i];
      accounts[i].n_wanted = prompts[i];
    }
    const u32 n_divided = ring.divide(n_rows);
    std::vector<u32> given;
    for (const ShareRing::Account& each : accounts) given.push_back(each.n_given);
    CHECK(std::accumulate(given.begin(), given.end(), 0u) == n_divided);
    return given;
  }
  std::vector<ShareRing::Account> accounts;
  ShareRing ring;
};

struct Case {
  const char* name;
  std::vector<i32> deficits;
  std::vector<u32> answers, prompts;
  u32 n_rows;
  std::vector<u32> given;
  std::vector<i32> deficits_after;
};

// The turn is tenant 0's, which has had its quantum.
const Case kCases[] = {
    {"nobody wants anything", {0, 0}, {0, 0}, {0, 0}, 8, {0, 0}, {0, 0}},
    {"a turn goes on", {5, 0}, {0, 0}, {99, 99}, 4, {4, 0}, {1, 0}},
    {"a turn ends, the next one begins", {5, 0}, {0, 0}, {99, 99}, 15, {5, 10}, {0, kQ - 10}},
    {"a quantum each, and the rest to who needs less",
     {0, 0, 0},
     {0, 0, 0},
     {99, 3, 99},
     3 + 2 * kQ,
     {kQ, 3, kQ},
     {0, 0, 0}},
    {"where nobody wants anything credit goes, too", {5, 0}, {0, 0}, {0, 0}, 8, {0, 0}, {0, 0}},
    {"who has nothing to do loses its credit", {5, 7}, {0, 0}, {0, 99}, 8, {0, 8}, {0, kQ - 8}},
    {"rows of answers are charged", {20, 0}, {15, 0}, {99, 99}, 15, {5, 10}, {0, kQ - 10}},
    {"a charge that uses up the turn ends it", {5, 0}, {9, 0}, {99, 99}, 8, {0, 8}, {-4, kQ - 8}},
    {"in debt: turns pay it first", {-40, 0}, {0, 0}, {999, 999}, 108, {24, 84}, {0, kQ - 20}},
    {"alone and in debt: not slowed", {-kDebt, 0}, {30, 0}, {999, 0}, 512, {512, 0}, {0, 0}},
    {"debt has a bound", {0, -kDebt}, {0, 60}, {9, 0}, 8, {8, 0}, {kQ - 8, -kDebt + kQ}},
    {"without prompts: differences stay, and the least charged has none",
     {0, 0, 0},
     {60, 1, 0},
     {0, 0, 0},
     8,
     {0, 0, 0},
     {-59, 0, 0}},
    {"the debt of an idle tenant passes with the rounds",
     {0, 0, -50},
     {10, 10, 0},
     {0, 0, 0},
     8,
     {0, 0, 0},
     {0, 0, -40}},
    {"no rows for prompts: charged all the same", {0, 0}, {9, 4}, {99, 99}, 0, {0, 0}, {-5, 0}},
};

TEST_CASE("the shares of a step") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    Ring ring(c.deficits.size());
    for (u64 i = 0; i < c.deficits.size(); ++i) ring.accounts[i].deficit = c.deficits[i];
    CHECK(ring.step(c.answers, c.prompts, c.n_rows) == c.given);
    for (u64 i = 0; i < c.deficits.size(); ++i) {
      CAPTURE(i);
      CHECK(ring.accounts[i].deficit == c.deficits_after[i]);
    }
  }
}

TEST_CASE("a tenant alone gets all rows that it wants, whatever it was charged") {
  Ring ring(7);
  for (u32 step = 0; step < 100; ++step) {
    std::vector<u32> answers(7, 0), prompts(7, 0);
    answers[3] = step % 64;
    prompts[3] = 1 + step * 37 % 900;
    CHECK(ring.step(answers, prompts, 512)[3] == std::min(prompts[3], 512u));
  }
}

// A lower charge for the one who answers more would show here: both want prompts all the time.
TEST_CASE("two tenants that always want rows get the same number of them, answers included") {
  struct Load {
    const char* name;
    u32 answers_a, answers_b, n_rows;
  };
  constexpr Load kLoads[] = {
      {"prompts alone", 0, 0, 8},
      {"one answers", 7, 0, 8},
      {"both answer", 5, 1, 9},
      {"more answers than rows of prompts: debt up to the bound", 60, 1, 500},
  };
  for (const Load& load : kLoads) {
    CAPTURE(std::string(load.name));
    Ring ring(2);
    i64 ahead = 0;  // rows of a beyond those of b
    for (u32 step = 0; step < 5'000; ++step) {
      const std::vector<u32> given =
          ring.step({load.answers_a, load.answers_b}, {9'999, 9'999}, load.n_rows);
      CHECK(given[0] + given[1] == load.n_rows);
      ahead += i64{given[0]} + load.answers_a - given[1] - load.answers_b;
      // Turns differ by one, what is left of them by a quantum and the charges of one turn.
      const u32 turn_steps = (kQ + load.n_rows - 1) / load.n_rows + 1;
      REQUIRE(std::abs(ahead) <= 2 * kQ + turn_steps * load.answers_a);
    }
  }
}

TEST_CASE("who floods with answers gets no row of a prompt until the others have had theirs") {
  Ring ring(2);
  u32 given_a = 0;
  for (u32 step = 0; step < 100; ++step) given_a += ring.step({60, 1}, {999, 999}, 8)[0];
  CHECK(given_a <= static_cast<u32>(kQ));  // 60 rows a step against 9: it has more than its share
}

// At random: other tenants come and go, with answers and prompts; the newcomer has no debt.
TEST_CASE("a prompt waits for a quantum of each other tenant in a round, and for no more") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  u32 longest = 0;
  for (u32 life = 0; life < 300; ++life) {
    const u32 n_tenants = 1 + static_cast<u32>(random.below(9));
    const u32 n_rows = 1 + static_cast<u32>(random.below(100));
    const u32 newcomer = static_cast<u32>(random.below(n_tenants));
    Ring ring(n_tenants);
    const auto step = [&](u32 n_wanted) {
      std::vector<u32> answers(n_tenants), prompts(n_tenants);
      for (u32 i = 0; i < n_tenants; ++i) {
        answers[i] = random.below(3) == 0 ? static_cast<u32>(random.below(60)) : 0;
        prompts[i] = random.below(4) != 0 ? static_cast<u32>(random.below(4 * kQ)) : 0;
      }
      answers[newcomer] = 0;
      prompts[newcomer] = n_wanted;
      std::vector<u32> given = ring.step(answers, prompts, n_rows);
      const u64 n_wanted_all = std::accumulate(prompts.begin(), prompts.end(), u64{0});
      CHECK(std::accumulate(given.begin(), given.end(), u64{0}) ==
            std::min<u64>(n_wanted_all, n_rows));
      for (u32 i = 0; i < n_tenants; ++i) {
        CHECK(given[i] <= prompts[i]);
        CHECK(ring.accounts[i].deficit >= -kDebt);
        CHECK(ring.accounts[i].deficit <= (prompts[i] > 0 ? kQ : 0));
      }
      return given;
    };
    for (u64 warm_up = random.below(50); warm_up > 0; --warm_up) step(0);
    const u32 n_prompt = 1 + static_cast<u32>(random.below(5 * kQ));
    std::vector<u32> passed(n_tenants, 0);  // rows of others before its last one
    for (u32 n_left = n_prompt; n_left > 0;) {
      const std::vector<u32> given = step(n_left);
      n_left -= given[newcomer];
      if (n_left == 0) break;
      for (u32 i = 0; i < n_tenants; ++i) passed[i] += given[i];
    }
    const u32 n_rounds = (n_prompt + kQ - 1) / kQ;
    for (u32 i = 0; i < n_tenants; ++i) {
      if (i == newcomer) continue;
      CHECK(passed[i] <= n_rounds * kQ);
      longest = std::max(longest, passed[i]);
    }
  }
  CHECK(longest > 3 * kQ);  // the bound is met, or nearly
}

TEST_CASE("rings of two priorities know nothing of each other") {
  std::vector<ShareRing::Account> memory(3 * Shares::kAccounts);
  Shares shares;
  shares.init(memory);
  ShareRing& interactive = shares.of(Priority::interactive);
  CHECK(interactive.accounts().size() == 3);
  interactive.accounts()[1].n_wanted = 40;
  CHECK(interactive.divide(33) == 33);
  CHECK(interactive.n_turns_before(1) == 2);
  CHECK(interactive.n_turns_before(2) == 0);
  CHECK(interactive.n_turns_before(0) == 1);
  for (const ShareRing::Account& each : shares.of(Priority::background).accounts())
    CHECK(each.deficit == 0);
  CHECK(shares.of(Priority::background).n_turns_before(1) == 0);
}

}  // namespace
}  // namespace tarn::step::shares_test
