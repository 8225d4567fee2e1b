// Goal    sinks, middle and local are disjoint and complete at every step, and an index is built,
//         rebuilt and swapped at the documented token counts, whatever the time anything takes.
// Method  METHODS' worked numbers (sinks 32, local 64, 1,000 tokens; 2x6 from 100 tokens on: 672,
//         1,185, 2,211); then every count up to 5,000 for several rules.
#include "runtime/method/token_ranges.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace tarn::method::token_ranges_test {
namespace {

TEST_CASE("the worked example: sinks 32, local 64") {
  const TokenRanges prompt = token_ranges(1000, 32, 64);
  CHECK(prompt.middle_begin == 32);
  CHECK(prompt.middle_end == 936);  // the middle is 32..935
  const TokenRanges later = token_ranges(1010, 32, 64, prompt.middle_end);
  CHECK(later.middle_end == 946);
  CHECK(later.n_local() == 64);
}

TEST_CASE("short sequences, and a local window that grows by not evicting") {
  CHECK(token_ranges(0, 32, 64).n_tokens == 0);
  CHECK(token_ranges(10, 32, 64).n_sinks() == 10);
  CHECK(token_ranges(10, 32, 64).n_middle() == 0);
  CHECK(token_ranges(90, 32, 64).n_local() == 58);
  CHECK(token_ranges(97, 32, 64).n_middle() == 1);
  const TokenRanges grown = token_ranges(1001, 32, 128, 936);
  CHECK(grown.middle_end == 936);
  CHECK(grown.n_local() == 65);
  CHECK(token_ranges(1065, 32, 128, 936).middle_end == 937);
}

TEST_CASE(
    "budgets: a share of the tokens behind the sinks, a floor for short prompts, or absolute") {
  const BudgetRule tenth = {
      .context_divisor = 10, .tokens_min = 256, .n_sinks = 32, .n_local = 0, .k = 0};
  CHECK(budget(tenth, 100).k == 34);      // half of 68
  CHECK(budget(tenth, 672).k == 128);     // half of 256
  CHECK(budget(tenth, 2559).k == 128);    // the last short one
  CHECK(budget(tenth, 20032).k == 1000);  // half of a tenth of 20,000
  CHECK(budget(tenth, 20032).n_local == 1000);
  const BudgetRule absolute = {
      .context_divisor = 0, .tokens_min = 256, .n_sinks = 32, .n_local = 512, .k = 2048};
  CHECK(budget(absolute, 100).k == 2048);
  CHECK(budget(absolute, 100000).n_local == 512);
}

struct Seen {
  IndexEvent event;
  u32 n_tokens;
  bool operator==(const Seen&) const = default;
};

TEST_CASE("an index is built at 672 tokens, rebuilt at 1,185 and 2,211, each in use 64 later") {
  for (const u32 divisor : {5u, 10u}) {
    CAPTURE(divisor);
    IndexLife life(
        {.context_divisor = divisor, .tokens_min = 256, .n_sinks = 32, .n_local = 0, .k = 0}, 6);
    std::vector<Seen> seen;
    u32 n_dense = 0;
    for (u32 n = 100; n <= 100 + 4096; ++n) {
      const IndexEvent event = life.advance(n);
      if (event != IndexEvent::none) seen.push_back({event, n});
      if (life.is_dense()) n_dense = n;
    }
    const std::vector<Seen> want = {{IndexEvent::build, 672},    {IndexEvent::activate, 736},
                                    {IndexEvent::rebuild, 1185}, {IndexEvent::activate, 1249},
                                    {IndexEvent::rebuild, 2211}, {IndexEvent::activate, 2275}};
    CHECK((seen == want));
    CHECK(n_dense == 735);
  }
}

TEST_CASE("a long prompt asks for its index at once; a short middle never gets one") {
  IndexLife life({.context_divisor = 0, .tokens_min = 0, .n_sinks = 32, .n_local = 512, .k = 2048},
                 6);
  CHECK((life.advance(32768) == IndexEvent::build));
  CHECK(life.n_rows_clustering() == 32768 - 32 - 512);
  CHECK(life.is_dense());
  CHECK((life.advance(32769) == IndexEvent::none));
  CHECK((life.advance(32832) == IndexEvent::activate));
  CHECK_FALSE(life.is_dense());
  IndexLife idle({.context_divisor = 0, .tokens_min = 0, .n_sinks = 32, .n_local = 512, .k = 64},
                 6);
  for (u32 n = 1; n < 32 + 512 + 512; ++n) REQUIRE((idle.advance(n) == IndexEvent::none));
  CHECK((idle.advance(32 + 512 + 512) == IndexEvent::build));
}

TEST_CASE("a context that is short for its budget is read as a whole") {
  SelectConfig config;
  CHECK(budget_rule(config).context_min == 2 * (32 + 512 + 2048));
  config.context_divisor = 10;
  CHECK(budget_rule(config).context_min == 0);
  config.context_min = 3000;
  CHECK(budget_rule(config).context_min == 3000);
  config.context_divisor = 0;
  IndexLife life(budget_rule(config), 6);
  for (u32 n = 1; n < 3000; ++n) REQUIRE((life.advance(n) == IndexEvent::none));
  CHECK((life.advance(3000) == IndexEvent::build));
  CHECK(life.n_rows_clustering() == 3000 - 32 - 512);
}

TEST_CASE("a cut leaves what the tokens before it would have led to, or nothing") {
  const BudgetRule rule{
      .context_divisor = 10, .tokens_min = 256, .n_sinks = 32, .n_local = 0, .k = 0};
  const auto life_of = [&](u32 n_tokens) {
    IndexLife life(rule, 6);
    for (u32 n = 100; n <= n_tokens; ++n) life.advance(n);
    return life;
  };
  // Build 672, in use at 736; rebuild 1185, in use at 1249.
  for (const u32 n_tokens : {671u, 700u, 736u, 900u, 1185u, 1220u, 1249u, 1400u}) {
    for (u32 cut = 600; cut <= n_tokens; cut += cut % 64 == 32 ? 31 : 1) {
      CAPTURE(n_tokens);
      CAPTURE(cut);
      IndexLife life = life_of(n_tokens);
      const bool keeps = cut >= (n_tokens < 1249 ? 672u : 1249u);
      REQUIRE(life.truncate(cut) == keeps);
      if (!keeps) {
        REQUIRE(life.is_dense());
        REQUIRE_FALSE(life.is_clustering());
        continue;
      }
      IndexLife want = life_of(cut);
      for (u32 n = cut + 1; n < 1400; ++n) {
        REQUIRE(life.advance(n) == want.advance(n));
        REQUIRE(life.k() == want.k());
        REQUIRE(life.is_dense() == want.is_dense());
        REQUIRE(life.ranges().middle_end == want.ranges().middle_end);
      }
    }
  }
}

TEST_CASE("ranges cover every token once at every step, and the middle never shrinks") {
  for (const BudgetRule& rule :
       {BudgetRule{10, 256, 32, 0, 0}, BudgetRule{5, 100, 4, 0, 0}, BudgetRule{0, 0, 0, 1, 8}}) {
    IndexLife life(rule, 4);
    u32 middle_end = 0;
    for (u32 n = 1; n <= 5000; ++n) {
      life.advance(n);
      const TokenRanges s = life.ranges();
      REQUIRE(s.n_tokens == n);
      REQUIRE(s.n_sinks() + s.n_middle() + s.n_local() == n);
      REQUIRE(s.middle_begin <= s.middle_end);
      REQUIRE(s.middle_end >= middle_end);
      middle_end = s.middle_end;
    }
  }
}

TEST_CASE("a life that was written down goes on as if it had not been") {
  const BudgetRule rules[] = {
      {.context_divisor = 0, .tokens_min = 0, .n_sinks = 4, .n_local = 16, .k = 8},
      {.context_divisor = 10, .tokens_min = 20, .n_sinks = 4, .n_local = 0, .k = 0}};
  for (const BudgetRule& rule : rules) {
    CAPTURE(rule.context_divisor);
    IndexLife life(rule, 2, 5);
    // An input of 90 tokens each 200.
    const auto go = [&](IndexLife& each, u32 n) {
      if (n % 200 < 90 && n % 200 != 0) return;  // read at once
      while (each.advance(n) != IndexEvent::none) {
      }
    };
    for (u32 n = 1; n < 1500; ++n) {
      go(life, n);
      IndexLife other(rule, 2, 5), original = life;
      if (life.is_dense() && !life.is_clustering()) continue;  // there is nothing to write down
      if (!other.restore(life.kept(), n, n)) FAIL("at ", n);
      for (u32 later = n + 1; later < n + 250; ++later) {
        go(other, later);
        go(original, later);
        const bool is_same =
            other.kept() == original.kept() && (original.is_dense() || other.k() == original.k());
        if (!is_same) FAIL("of ", n, " at ", later);
      }
    }
  }
}

TEST_CASE("a life that cannot have been is not taken up, and one that is taken up ends no loop") {
  const BudgetRule rule = {
      .context_divisor = 0, .tokens_min = 0, .n_sinks = 4, .n_local = 16, .k = 8};
  constexpr u32 kTokens = 400, kWords = sizeof(KeptLife) / sizeof(u32);
  const KeptLife lives[] = {{.middle_end = 380, .rows_used = 200, .used_trigger = 300},
                            {.middle_end = 380, .rows_pending = 370, .trigger_at = 398},
                            {.middle_end = 380,
                             .rows_used = 200,
                             .used_trigger = 300,
                             .rows_pending = 370,
                             .trigger_at = 398}};
  u32 n_taken = 0, n_refused = 0;
  for (const KeptLife& good : lives) {
    for (u32 word = 0; word < kWords; ++word) {
      for (const u32 value :
           {0u, 1u, 31u, 199u, 249u, 380u, 384u, 398u, kTokens, kTokens + 1, ~0u}) {
        auto words = std::bit_cast<std::array<u32, kWords>>(good);
        words[word] = value;
        IndexLife life(rule, 2, 5);
        if (!life.restore(std::bit_cast<KeptLife>(words), kTokens, kTokens)) {
          ++n_refused;
          continue;
        }
        ++n_taken;
        for (u32 n = kTokens; n < 2000; ++n) {
          u32 n_events = 0;
          while (life.advance(n) != IndexEvent::none) {
            if (++n_events > 4) FAIL("word ", word, " value ", value, " at ", n);
          }
          const TokenRanges s = life.ranges();
          const bool holds = s.middle_end < n && life.n_rows_clustering() <= s.n_middle() &&
                             life.n_rows_used() <= s.n_middle();
          if (!holds) FAIL("word ", word, " value ", value, " at ", n);
        }
      }
    }
  }
  CHECK(n_taken > 30);
  CHECK(n_refused > 100);
}

TEST_CASE("of a life that is taken up, no cut leaves rows clustered that it takes away") {
  const BudgetRule rule = {
      .context_divisor = 0, .tokens_min = 0, .n_sinks = 4, .n_local = 16, .k = 8};
  constexpr u32 kTokens = 400, kSwap = 5;
  constexpr u32 kRows[] = {0, 32, 100, 200, 295, 296, 370, 376};
  constexpr u32 kTriggers[] = {0, 1, 104, 105, 204, 205, 299, 300, 301, 304, 305, 374, 375, 395};
  u32 n_taken = 0, n_kept = 0;
  const auto look = [&](const KeptLife& kept) {
    IndexLife life(rule, 2, kSwap);
    if (!life.restore(kept, kTokens, kTokens)) return;
    ++n_taken;
    for (u32 n = 0; n <= kTokens; ++n) {
      IndexLife cut = life;
      const bool keeps = cut.truncate(n);
      n_kept += keeps;
      const u32 n_middle = cut.ranges().n_middle();
      const bool holds = (keeps || (cut.is_dense() && !cut.is_clustering())) &&
                         cut.ranges().n_tokens == (keeps ? n : 0) &&
                         cut.n_rows_used() <= n_middle && cut.n_rows_clustering() <= n_middle;
      if (!holds) {
        FAIL("used ", kept.rows_used, " at ", kept.used_trigger, ", pending ", kept.rows_pending,
             " at ", kept.trigger_at, ", cut to ", n);
      }
    }
  };
  for (const u32 rows : kRows) {
    for (const u32 trigger : kTriggers) {
      for (const u32 more : kRows) {
        for (const u32 later : kTriggers) {
          for (const u32 used_is_first : {0u, 1u}) {
            look({.middle_end = 380,
                  .rows_used = rows,
                  .used_trigger = trigger,
                  .rows_pending = more,
                  .trigger_at = later,
                  .used_is_first = used_is_first});
          }
        }
      }
    }
  }
  CHECK(n_taken > 300);
  CHECK(n_kept > 10000);
  // The least and the most that a trigger leaves room for.
  struct Told {
    KeptLife life;
    bool is_taken;
  };
  const Told told[] = {
      {{.middle_end = 380, .rows_used = 376, .used_trigger = 1}, false},
      {{.middle_end = 380, .rows_used = 200, .used_trigger = 204}, false},
      {{.middle_end = 380, .rows_used = 200, .used_trigger = 205}, true},
      {{.middle_end = 380, .rows_pending = 376, .trigger_at = 1}, false},
      {{.middle_end = 380, .rows_pending = 200, .trigger_at = 204}, false},
      {{.middle_end = 380, .rows_pending = 200, .trigger_at = 205}, true},
      {{.middle_end = 380, .rows_used = 200, .used_trigger = 300, .used_is_first = 1}, true},
      {{.middle_end = 380, .rows_used = 200, .used_trigger = 300, .used_is_first = 2}, false},
      {{.middle_end = 380, .used_is_first = 1}, false},
  };
  for (const Told& each : told) {
    CAPTURE(each.life.rows_used);
    CAPTURE(each.life.used_trigger);
    CAPTURE(each.life.trigger_at);
    IndexLife life(rule, 2, kSwap);
    CHECK(life.restore(each.life, kTokens, kTokens) == each.is_taken);
  }
}

}  // namespace
}  // namespace tarn::method::token_ranges_test
