// Goal    the gap between two tokens of a running answer keeps pace.h's bound, prompts are never
//         stopped, and what the bound allows is used.
// Method  a table of observations; then a machine whose times are known is driven step by step, and
//         each step is held against the header's formula, made of the machine's own times.
#include "runtime/step/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/pace_bound.h"
#include "tests/support/seed.h"

namespace tarn::step::pace_test {
namespace {

constexpr u64 kMs = 1'000'000;
constexpr u32 kMin = Pace::kRowsMin;

struct Step {
  u32 n_answers, n_prompt_rows;
  u64 ms;
};
struct Case {
  const char* name;
  std::vector<Step> steps;
  u64 gap_ms;
  u32 n_answers, rows_max;
  u32 n_rows;
};

const Case kCases[] = {
    {"no answer runs", {}, 100, 0, 512, 512},
    {"nothing is known", {}, 100, 1, 512, kMin},
    {"less fits into a step", {}, 100, 1, 3, 3},
    {"no answer ran: rows were tried beside none", {{0, 512, 512}}, 900, 1, 512, kMin},
    {"twice what was tried", {{1, 8, 108}}, 9'000, 1, 512, 16},
    {"twice the most that was tried", {{1, 8, 108}, {1, 16, 116}}, 9'000, 1, 512, 32},
    {"without a step alone all of the time is the rows'", {{1, 20, 400}}, 500, 1, 512, 25},
    {"with one the rest", {{1, 0, 200}, {1, 20, 400}}, 500, 1, 512, 30},
    {"half of the answers need half of the time or more",
     {{8, 0, 400}, {8, 20, 600}},
     500,
     4,
     512,
     30},
    {"more answers need no less", {{1, 0, 200}, {1, 20, 400}}, 500, 9, 512, 30},
    {"a step that takes less than one alone did corrects that",
     {{1, 0, 400}, {1, 8, 200}, {1, 20, 320}},
     500,
     1,
     512,
     40},  // 200 ms alone: (500 - 200) / ((320 - 200) / 20) is 50, tried are 20
    {"it rises at once", {{1, 0, 100}, {1, 20, 300}, {1, 20, 500}}, 500, 1, 512, 20},
    // 20 ms a row, then a sample of 10 in a step whose rows took two thirds of the time: a twelfth
    // of the difference.
    {"and falls slowly", {{1, 0, 100}, {1, 20, 500}, {1, 20, 300}}, 500, 1, 512, 20},
    {"a few rows teach nothing", {{1, 0, 100}, {1, 20, 300}, {1, 7, 900}}, 500, 1, 512, 40},
    {"answers alone take longer than the gap", {{1, 0, 600}, {1, 20, 800}}, 500, 1, 512, kMin},
};

TEST_CASE("what was observed, and the rows that follow") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    Pace pace;
    for (const Step& step : c.steps)
      pace.observe(step.n_answers, step.n_prompt_rows, step.ms * kMs);
    CHECK(pace.prompt_rows(c.gap_ms * kMs, c.n_answers, c.rows_max) == c.n_rows);
  }
}

struct Machine {
  const char* name;
  f64 step_ms, answer_ms, row_ms;
  f64 attention;  // what a row at position 16K takes more, as a part
  u64 gap_ms;
};
constexpr Machine kMachines[] = {
    {"two cores", 180, 5, 26, 0.5, 600},
    {"a fast GPU", 20, 0.2, 0.1, 0.5, 50},
    {"answers cost as much as rows of prompts", 1, 1, 1, 0, 100},
    {"answers alone pass the gap", 500, 5, 26, 0, 400},
};

f64 alone_ms(const Machine& m, u32 n_answers) { return m.step_ms + m.answer_ms * n_answers; }

TEST_CASE("while nothing changes, a gap is kept from the first step on, and soon used") {
  for (const Machine& m : kMachines) {
    CAPTURE(std::string(m.name));
    for (const u32 n_answers : {1u, 4u, 60u}) {
      for (const bool begins_alone : {false, true}) {
        CAPTURE(n_answers);
        CAPTURE(begins_alone);
        Pace pace;
        const f64 alone = alone_ms(m, n_answers);
        const f64 bound_ms = std::max<f64>(static_cast<f64>(m.gap_ms), alone + kMin * m.row_ms);
        if (begins_alone) pace.observe(n_answers, 0, static_cast<u64>(alone * kMs));
        u32 n_last = 0;
        // Without a step alone what it costs is taken for the rows', and goes slowly.
        for (u32 step = 0; step < (begins_alone ? 12u : 200u); ++step) {
          const u32 n = pace.prompt_rows(m.gap_ms * kMs, n_answers, 512);
          CHECK(n <= std::max(kMin, 2 * n_last));
          const f64 ms = alone + n * m.row_ms;
          REQUIRE(ms <= bound_ms * 1.0001);  // times are whole nanoseconds
          pace.observe(n_answers, n, static_cast<u64>(ms * kMs));
          n_last = n;
        }
        // Whole rows: all but one. Without a step alone the answers' time counts as the rows', and
        // one more row seems to take that much more.
        const f64 n_could = (bound_ms - alone) / m.row_ms;
        const f64 n_short = 1 + (begins_alone ? 0 : alone / (n_last * m.row_ms));
        CHECK(n_last >= std::min(511.0, n_could * 0.999 - n_short));
      }
    }
  }
}

// Answers come and go, prompts are at any position, some steps have few of them or none, each step
// takes up to 5 % more than it should.
TEST_CASE("while all changes, each step keeps the bound of the header") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Machine& m : kMachines) {
    CAPTURE(std::string(m.name));
    for (u32 life = 0; life < 50; ++life) {
      Pace pace;
      test::PaceBound bound;
      u32 n_tried = 0;
      u32 n_answers = 0;
      u64 position = 0, n_above = 0, n_steps = 0;
      for (u32 step = 0; step < 300; ++step) {
        if (random.below(6) == 0) n_answers = static_cast<u32>(random.below(61));
        position = random.below(10) == 0 ? random.below(16'000) : position + 20;
        const f64 slow = 1 + 0.05 * static_cast<f64>(random.below(100)) / 100;
        const f64 alone = alone_ms(m, n_answers) * slow;
        const f64 row = m.row_ms * slow * (1 + m.attention * static_cast<f64>(position) / 16'000);
        const u32 n_most = pace.prompt_rows(m.gap_ms * kMs, n_answers, 512);
        const u64 demand = random.below(4);
        const u32 n = demand == 0   ? 0
                      : demand == 1 ? std::min(n_most, static_cast<u32>(random.below(20)))
                                    : n_most;
        if (n_answers + n == 0) continue;
        const test::PaceStep taken{n_answers, n, alone, row};
        const f64 ms = taken.step_ms();
        if (n_answers > 0 && n > 0) {
          CHECK(n <= std::max(kMin, 2 * n_tried));
          REQUIRE(ms <= bound.ms(static_cast<f64>(m.gap_ms), taken));
          n_above += u64{ms > static_cast<f64>(m.gap_ms)};
          ++n_steps;
          if (n >= kMin) n_tried = std::max(n_tried, n);
        }
        bound.observe(taken);
        pace.observe(n_answers, n, static_cast<u64>(ms * kMs));
      }
      CHECK(n_steps > 100);
      if (alone_ms(m, 61) + kMin * m.row_ms < static_cast<f64>(m.gap_ms)) CHECK(n_above < n_steps);
    }
  }
}

}  // namespace
}  // namespace tarn::step::pace_test
