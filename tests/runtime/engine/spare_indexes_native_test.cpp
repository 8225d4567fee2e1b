// Goal    sessions whose indexes are renewed share one spare set of them. Who comes first has it
//         until its swap; who stops loses it; who has none by its swap fills its own set, a layer a
//         step. So no row waits for another session, no step clusters more than a layer for each
//         row that is due, and no bit tells who had the set.
// Method  small random models, an index of 2 bits from 60 tokens on; answers beside others compared
//         as bytes with those of an engine alone; units of clustering and tokens counted by steps.
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
      if (!open.engine.take_event(idx, &event, text)) {
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

TEST_CASE("two sessions that stopped while they rebuild do not take the spare indexes for ever") {
  const SmallModel model("llama", "f16");
  Config config = config_of(30);
  config.sessions_max = 3;
  OpenEngine open(model.path(), config);
  Engine& engine = open.engine;
  for (const u64 seed : {7u, 8u}) {
    const SessionIdx idx = open.session_with(test::random_ids(seed, 60));
    begin(engine, idx, Rebuilding::kBefore);
  }
  read(engine, 0);
  read(engine, 1);
  const SessionIdx other = open.session_with(test::random_ids(9, 20));
  begin(engine, other, 6);
  read(engine, other);
  u32 n_idle_steps = 0;
  for (; engine.has_work() && n_idle_steps < 1000; ++n_idle_steps) engine.step();
  CHECK(n_idle_steps < 1000);  // a clustering has as many units as layers
}

TEST_CASE("a session that stops while it rebuilds leaves the spare indexes to those that go on") {
  const SmallModel model("llama", "f16");
  Answer want_other, want_more;
  u32 n_units_max = 0;
  {
    Rebuilding alone(model);
    read(alone.open.engine, alone.session(7, Rebuilding::kBefore));
    begin(alone.open.engine, 0, 60);
    want_more = read(alone.open.engine, 0);
    alone.open.engine.destroy_session(0);
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
      while (engine.session_state(stopped).generation.n_generated < Rebuilding::kBefore)
        engine.step();
      engine.request_cancel(stopped);
    }
    read(engine, stopped);
    if (stop == Stop::cut) {  // behind the trigger: the job goes on
      REQUIRE(engine.truncate(stopped, 60 + Rebuilding::kBefore).has_value());
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

// Sessions that are read while they step.
struct Readers {
  Readers(Engine& of_engine, u32 n) : engine(of_engine), said(n) {}
  u32 step() {
    const u32 n_units = engine.step().n_cluster_units;
    Event event;
    char text[256];
    for (u32 idx = 0; idx < said.size(); ++idx) {
      while (engine.take_event(idx, &event, text)) {
        if (event.type == EventType::token) said[idx].add(event.token);
      }
    }
    return n_units;
  }
  void read_all() {
    while (engine.has_work()) step();
  }
  u32 n_said(SessionIdx idx) const { return engine.session_state(idx).generation.n_generated; }

  Engine& engine;
  std::vector<Answer> said;
};

TEST_CASE("rebuilds that come together keep each row waiting for its own layers alone") {
  const SmallModel model("llama", "f16");
  struct Case {
    const char* name;
    u32 index_delay_tokens;
    u32 steps_between;  // their first tokens
    std::array<SessionIdx, 4> turns;
  };
  const Case cases[] = {{"all at once, due at once", 1, 0, {0, 1, 2, 3}},
                        {"one after the other, due at once", 1, 1, {3, 2, 1, 0}},
                        {"all at once, due later", 30, 0, {0, 1, 2, 3}},
                        {"one after the other, due later", 30, 5, {2, 1, 0, 3}}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Config config = config_of(c.index_delay_tokens);
    OpenEngine open(model.path(), config);
    Engine& engine = open.engine;
    const u32 n_layers = engine.spec().n_cache_layers, n = static_cast<u32>(c.turns.size());
    Readers readers(engine, n);
    for (u32 idx = 0; idx < n; ++idx) {
      REQUIRE(open.session_with(test::random_ids(7 + idx, 60)) == idx);
    }
    open.run();
    for (const SessionIdx idx : c.turns) {
      begin(engine, idx, 110);
      for (u32 i = 0; i < c.steps_between; ++i) readers.step();
    }
    // The first indexes have sets of their own. 110 tokens trigger the rebuilds.
    for (u32 i = 0; i < 1000 && readers.n_said(c.turns[n - 1]) < 40; ++i) readers.step();
    std::vector<u32> n_waited(n);
    for (u32 i = 0; i < 1000 && readers.n_said(c.turns[n - 1]) < 85; ++i) {
      std::vector<u32> before;
      for (u32 idx = 0; idx < n; ++idx) before.push_back(readers.n_said(idx));
      CHECK(readers.step() <= n);
      for (u32 idx = 0; idx < n; ++idx) n_waited[idx] += readers.n_said(idx) == before[idx];
    }
    readers.read_all();
    for (u32 idx = 0; idx < n; ++idx) {
      CAPTURE(idx);
      CHECK(n_waited[idx] <= n_layers - 1);  // the last layer's step has the row, too
      OpenEngine alone(model.path(), config);
      begin(alone.engine, alone.session_with(test::random_ids(7 + idx, 60)), 110);
      CHECK((readers.said[idx] == read(alone.engine, 0)));
    }
  }
}

}  // namespace
}  // namespace tarn::engine::spare_indexes_native_test
