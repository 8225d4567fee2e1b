// Goal    sessions whose indexes are renewed share one spare set of them. A session that stops
//         loses it, and no bit tells which session had it.
// Method  small random models, an index of 2 bits from 60 tokens on; answers beside others compared
//         as bytes with those of an engine alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/runtime/engine/answer_bits.h"

namespace tarn::engine::spare_indexes_native_test {
namespace {

using test::OpenEngine;
using test::SmallModel;
using test_bits::Answer;
using test_bits::begin;
using test_bits::few;
using test_bits::read;

constexpr u32 kRows = 64;

Config config_of(u32 index_delay_tokens, u32 rows_max = kRows) {
  return test_bits::selecting(few(SelectMethod::pq, index_delay_tokens), rows_max);
}

// The first index is triggered at 60 tokens and used from 90 on; a rebuild is triggered at 110 and
// comes into use at 140. Two sessions are there, and one spare set of indexes.
struct Rebuilding {
  static constexpr u32 kBefore = 55;  // tokens generated: the rebuild is done, and not in use

  explicit Rebuilding(const SmallModel& model, u32 rows_max = kRows)
      : open(model.path(), config_of(30, rows_max)) {}
  SessionIdx session(u64 seed, u32 n) {
    const SessionIdx idx = open.session_with(test::random_ids(seed, 60));
    begin(open.engine, idx, n);
    return idx;
  }
  // With the most of a clustering that one step does meanwhile.
  Answer read_by_steps(SessionIdx idx, u32* n_units_max) {
    Answer answer;
    Event event;
    char text[256];
    for (;;) {
      if (!open.engine.sessions().take_event(idx, &event, text)) {
        *n_units_max = std::max(*n_units_max, open.engine.step().n_cluster_units);
      } else if (event.type == EventType::token) {
        answer.tokens.push_back(event.token.token);
        answer.logprobs.push_back(event.token.logprob);
      } else if (event.type == EventType::done) {
        return answer;
      }
    }
  }
  OpenEngine open;
};

TEST_CASE("a session that stops while it rebuilds leaves the spare indexes to those that go on") {
  const SmallModel model("llama", "f16");
  Answer want_other, want_more;
  u32 n_units_max = 0;
  {
    Rebuilding alone(model);
    read(alone.open.engine, alone.session(7, Rebuilding::kBefore));
    begin(alone.open.engine, 0, 60);
    want_more = read(alone.open.engine, 0);
    alone.open.engine.sessions().destroy(0);
    want_other = alone.read_by_steps(alone.session(8, 120), &n_units_max);
    CHECK(n_units_max == 1);
  }
  enum class Stop { end, cancel, cut };
  for (const Stop stop : {Stop::end, Stop::cancel, Stop::cut}) {
    CAPTURE(static_cast<u32>(stop));
    Rebuilding both(model);
    Engine& engine = both.open.engine;
    const SessionIdx stopped = both.session(7, Rebuilding::kBefore + (stop == Stop::end   ? 0
                                                                      : stop == Stop::cut ? 3
                                                                                          : 20));
    if (stop == Stop::cancel) {
      while (engine.sessions().state(stopped).generation.n_generated < Rebuilding::kBefore)
        engine.step();
      engine.sessions().request_cancel(stopped);
    }
    read(engine, stopped);
    if (stop == Stop::cut) {  // behind the trigger: the job goes on
      REQUIRE(engine.sessions().truncate(stopped, 60 + Rebuilding::kBefore).has_value());
    }
    const SessionIdx other = both.session(8, 120);
    CHECK((both.read_by_steps(other, &n_units_max) == want_other));
    CHECK(n_units_max == 1);  // of two layers, in 30 steps
    // What it had done for its rebuild is lost, and done again.
    begin(engine, stopped, 60);
    CHECK((both.read_by_steps(stopped, &n_units_max) == want_more));
    CHECK(n_units_max == 1);
  }
}

}  // namespace
}  // namespace tarn::engine::spare_indexes_native_test
