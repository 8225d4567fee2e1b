// Goal    a cancel stops a step half way, where all of the step is cancelled: nothing of it counts,
//         and what comes later has the bits that it would have had; where somebody else's rows are
//         in the step, it goes on to its end.
// Method  the cancel comes from the clock that the engine reads in front of the layers, so it is
//         there in every run when the backend asks between tasks whether the step is wanted.
#include <doctest/doctest.h>

#include "tests/support/open_engine.h"

namespace tarn::engine {
namespace {

using test::OpenEngine;
using test::SmallModel;

// Cancels sessions when a step reads the time for the n-th time: the second is in front of its
// layers.
class CancellingClock final : public Clock {
 public:
  u64 now_ns() override {
    if (engine != nullptr && n_left > 0 && --n_left == 0) {
      for (const SessionIdx session : sessions) engine->request_cancel(session);
    }
    return clock_.now_ns();
  }
  Engine* engine = nullptr;
  u32 n_left = 0;
  std::vector<SessionIdx> sessions{};

 private:
  SystemClock clock_{};
};

Config sliced_config(u32 n_threads) {
  Config config = test::small_config();
  config.batch_rows_max = 64;
  config.n_threads = n_threads;
  config.context_tokens = 1024;
  return config;
}

// The step in whose layers the sessions are cancelled.
const StepTrace& cancelled_step(CancellingClock& clock, Engine& engine,
                                std::vector<SessionIdx> sessions) {
  clock.engine = &engine;
  clock.sessions = std::move(sessions);
  clock.n_left = 2;
  const StepTrace& trace = engine.step();
  clock.engine = nullptr;
  REQUIRE(clock.n_left == 0);
  return trace;
}

std::vector<u32> generated(Engine& engine, SessionIdx session) {
  REQUIRE(engine.generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  return test::read_all(engine, session).tokens;
}

TEST_CASE("a prefill slice that is cancelled in its layers counts for nothing") {
  const SmallModel model("llama", "q4_k");
  const std::vector<u32> first = test::random_ids(1, 70), second = test::random_ids(2, 150);
  OpenEngine fresh(model.path(), test::small_config());
  const std::vector<u32> want = generated(fresh.engine, fresh.session_with(first));
  for (const u32 n_threads : {1u, 2u}) {
    CAPTURE(n_threads);
    CancellingClock clock;
    OpenEngine open(model.path(), sliced_config(n_threads), &clock);
    Engine& engine = open.engine;
    const SessionIdx session = open.session_with(first);
    open.run();
    REQUIRE(engine.feed(session, second).has_value());
    engine.step();
    const u32 n_slots = engine.session_state(session).sequence.n_slots();
    const u64 n_steps = engine.counters().n_steps;
    const StepTrace& trace = cancelled_step(clock, open.engine, {session});
    CHECK(trace.abandoned);
    CHECK(trace.n_prefill_rows == 64);
    CHECK(engine.session_state(session).sequence.n_slots() == n_slots);
    CHECK(engine.counters().n_steps == n_steps);
    open.run();
    CHECK(engine.session_state(session).state == SessionState::idle);
    CHECK(engine.session_state(session).n_ids == n_slots);
    // Cut back to before the second text, it goes on as if that had never been fed.
    REQUIRE(engine.truncate(session, static_cast<u32>(first.size())).has_value());
    CHECK(generated(engine, session) == want);
    engine.destroy_session(session);
    CHECK(engine.pool().groups_free() == engine.pool().groups_max());
  }
}

TEST_CASE("a decode step that is cancelled in its layers is taken up again") {
  const SmallModel model("qwen3", "q8_0");
  const std::vector<u32> ids = test::random_ids(3, 40);
  OpenEngine fresh(model.path(), test::small_config());
  const std::vector<u32> want = generated(fresh.engine, fresh.session_with(ids));
  CancellingClock clock;
  OpenEngine open(model.path(), sliced_config(2), &clock);
  const SessionIdx session = open.session_with(ids);
  REQUIRE(open.engine.generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  while (open.engine.session_state(session).n_generated < 5) open.engine.step();
  CHECK(cancelled_step(clock, open.engine, {session}).abandoned);
  const test::Said said = test::read_all(open.engine, session);
  CHECK(said.done.finish == Finish::cancelled);
  REQUIRE(said.tokens == std::vector<u32>(want.begin(), want.begin() + 5));
  REQUIRE(open.engine.generate(session, {.max_tokens = 7, .ignore_end = true}).has_value());
  CHECK(test::read_all(open.engine, session).tokens ==
        std::vector<u32>(want.begin() + 5, want.end()));
}

TEST_CASE("a step that somebody else needs goes on to its end") {
  const SmallModel model("llama", "q4_k");
  const std::vector<u32> ids = test::random_ids(4, 30), other_ids = test::random_ids(5, 30);
  OpenEngine fresh(model.path(), test::small_config());
  const std::vector<u32> want = generated(fresh.engine, fresh.session_with(ids));
  CancellingClock clock;
  OpenEngine open(model.path(), sliced_config(2), &clock);
  const SessionIdx session = open.session_with(ids), other = open.session_with(other_ids);
  REQUIRE(open.engine.generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  REQUIRE(open.engine.generate(other, {.max_tokens = 12, .ignore_end = true}).has_value());
  const StepTrace& trace = cancelled_step(clock, open.engine, {other});
  CHECK_FALSE(trace.abandoned);
  CHECK(trace.n_sequences == 2);
  CHECK(test::read_all(open.engine, session).tokens == want);
  CHECK(test::read_all(open.engine, other).done.finish == Finish::cancelled);
}

}  // namespace
}  // namespace tarn::engine
