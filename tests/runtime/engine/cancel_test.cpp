// Goal    a cancel ends what runs within its step: its end is told at once, nothing of its rows
//         counts; a step that another session needs goes on. (Later answers have the bits that they
//         would have had: sim/reuse_random, many_callers.)
// Method  the cancel comes from the clock that the engine reads in front of the layers, or from the
//         watch that is shown K and V of a layer, so it is there in every run when the backend asks
//         between tasks whether the step is wanted. No time is measured: the end is read by the
//         watch of the next layer.
#include <doctest/doctest.h>

#include <array>
#include <utility>

#include "runtime/lab/probe.h"
#include "tests/support/kv_invariants.h"
#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::cancel_test {
namespace {

using test::OpenEngine;
using test::SmallModel;

// Cancels sessions when a step reads the time for the n-th time: the second is in front of its
// layers.
class CancellingClock final : public Clock {
 public:
  u64 now_ns() override {
    if (engine != nullptr && n_left > 0 && --n_left == 0) {
      for (const SessionIdx session : sessions) engine->sessions().request_cancel(session);
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
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
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
    REQUIRE(engine.sessions().feed(session, second).has_value());
    engine.step();
    const u32 n_slots = engine.sessions().state(session).sequence.n_slots();
    const u64 n_steps = engine.status().counters.n_steps;
    const StepTrace& trace = cancelled_step(clock, open.engine, {session});
    CHECK(trace.abandoned);
    CHECK(trace.n_prefill_rows == 64);
    CHECK(engine.sessions().state(session).sequence.n_slots() == n_slots);
    CHECK(engine.status().counters.n_steps == n_steps);
    open.run();
    CHECK(engine.sessions().state(session).state == SessionState::idle);
    CHECK(engine.sessions().state(session).tokens.n_ids == n_slots);
    // Cut back to before the second text, it goes on as if that had never been fed.
    REQUIRE(engine.sessions().truncate(session, static_cast<u32>(first.size())).has_value());
    CHECK(generated(engine, session) == want);
    engine.sessions().destroy(session);
    CHECK(lab::Probe::pool(engine).groups_free() == lab::Probe::pool(engine).groups_max());
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
  REQUIRE(
      open.engine.sessions().generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  while (open.engine.sessions().state(session).generation.n_generated < 5) open.engine.step();
  CHECK(cancelled_step(clock, open.engine, {session}).abandoned);
  const test::Said said = test::read_all(open.engine, session);
  CHECK(said.done.finish == Finish::cancelled);
  REQUIRE(said.tokens == std::vector<u32>(want.begin(), want.begin() + 5));
  REQUIRE(
      open.engine.sessions().generate(session, {.max_tokens = 7, .ignore_end = true}).has_value());
  CHECK(test::read_all(open.engine, session).tokens ==
        std::vector<u32>(want.begin() + 5, want.end()));
}

// Cancels a session while the first layer of a step is computed, and reads what it has to say while
// the last one is.
class CancelInStep {
 public:
  CancelInStep(Engine& engine, SessionIdx session) : engine_(engine), session_(session) {}

  // One step, which both sessions are in, or the other alone.
  const StepTrace& step(u32 n_sequences = 2) {
    lab::Probe(engine_).watch_kv({&CancelInStep::on_rows, this});
    const StepTrace& trace = engine_.step();
    lab::Probe(engine_).watch_kv({});
    CHECK(trace.n_sequences == n_sequences);
    CHECK_FALSE(trace.abandoned);
    return trace;
  }
  SessionState state = SessionState::free;  // in the last layer
  u32 n_ids = 0;
  u32 n_tokens = 0, n_done = 0;  // events
  DoneEvent done{};

 private:
  static void on_rows(void* context, const step::KvRows& rows) {
    auto& self = *static_cast<CancelInStep*>(context);
    if (rows.cache_layer == 0) return self.engine_.sessions().request_cancel(self.session_);
    Event event;
    std::array<char, 256> text{};
    while (self.engine_.sessions().take_event(self.session_, &event, text)) {
      if (event.type == EventType::token) ++self.n_tokens;
      if (event.type != EventType::done) continue;
      ++self.n_done;
      self.done = event.done;
    }
    self.state = self.engine_.sessions().state(self.session_).state;
    self.n_ids = self.engine_.sessions().state(self.session_).tokens.n_ids;
  }

  Engine& engine_;
  SessionIdx session_;
};

// One that generates, watched, beside whom others are cancelled.
struct Other {
  static constexpr u32 kTokens = 30;
  explicit Other(OpenEngine& open) : engine(open.engine) {
    session = open.session_with(test::random_ids(5, 30));
    lab::Probe(engine).watch_logits(session, &test::LogitsRecord::on_logits, &logits);
    REQUIRE(engine.sessions()
                .generate(session, {.max_tokens = kTokens, .ignore_end = true})
                .has_value());
  }
  void finish() { tokens = test::read_all(engine, session).tokens; }
  void require_same(const Other& want) const {
    REQUIRE(tokens == want.tokens);
    test::require_same_bits(logits, want.logits);
  }
  Engine& engine;
  SessionIdx session = 0;
  test::LogitsRecord logits{};
  std::vector<u32> tokens{};
};

enum class Part : u8 { fed, first_slice, later_slice, last_slice, decode };

// Brings a session of `first` to a step of this part of its next answer.
void bring_to(Part part, Engine& engine, SessionIdx session) {
  const std::vector<u32> second = test::random_ids(2, part == Part::last_slice ? 40 : 150);
  if (part != Part::decode) REQUIRE(engine.sessions().feed(session, second).has_value());
  if (part == Part::fed) return;
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  if (part == Part::later_slice) engine.step();
  while (part == Part::decode && engine.sessions().state(session).generation.n_generated < 5)
    engine.step();
}

TEST_CASE("the end is told before that of a step which goes on for somebody else") {
  const SmallModel model("llama", "q4_k");
  const std::vector<u32> first = test::random_ids(1, 70);
  OpenEngine alone(model.path(), sliced_config(1));
  const std::vector<u32> want = generated(alone.engine, alone.session_with(first));
  Other want_other(alone);
  want_other.finish();
  for (const u32 n_threads : {1u, 3u}) {
    if (test::kSlowBuild && n_threads == 1) continue;
    for (const Part part :
         {Part::fed, Part::first_slice, Part::later_slice, Part::last_slice, Part::decode}) {
      CAPTURE(n_threads);
      CAPTURE(static_cast<u32>(part));
      OpenEngine open(model.path(), sliced_config(n_threads));
      Engine& engine = open.engine;
      const SessionIdx session = open.session_with(first);
      open.run();
      Other other(open);
      bring_to(part, engine, session);
      const u32 n_slots = engine.sessions().state(session).sequence.n_slots();
      CancelInStep cancel(engine, session);
      cancel.step();
      const Session& s = engine.sessions().state(session);
      CHECK(cancel.state == SessionState::idle);
      CHECK(cancel.n_done == (part == Part::fed ? 0 : 1));
      CHECK(cancel.n_tokens == (part == Part::decode ? 5 : 0));
      CHECK(cancel.done.n_tokens == cancel.n_tokens);
      if (part != Part::fed) CHECK(cancel.done.finish == Finish::cancelled);
      CHECK(s.sequence.n_slots() == n_slots);
      CHECK(s.tokens.n_ids == cancel.n_ids);
      CHECK(s.tokens.n_ids ==
            (part == Part::later_slice ? n_slots : first.size() + cancel.n_tokens));
      CHECK(s.sequence.n_reserved() <= s.tokens.n_ids);
      CHECK_FALSE(s.cancel.load());
      test::check_invariants(s.sequence, lab::Probe::pool(engine), engine.spec().n_cache_layers);

      if (part == Part::later_slice || part == Part::decode) {
        REQUIRE(engine.sessions().truncate(session, static_cast<u32>(first.size())).has_value());
      }
      CHECK(generated(engine, session) == want);  // beside the other
      other.finish();
      other.require_same(want_other);
      engine.sessions().destroy(session);
      engine.sessions().destroy(other.session);
      CHECK(lab::Probe::pool(engine).groups_free() == lab::Probe::pool(engine).groups_max());
    }
  }
}

// Of the disk's time; cancels at a moment.
class LateCancel final : public Clock {
 public:
  explicit LateCancel(VirtualClock& clock) : clock_(clock) {}
  u64 now_ns() override {
    const u64 now = clock_.now_ns();
    if (engine != nullptr && now >= at_ns)
      std::exchange(engine, nullptr)->sessions().request_cancel(session);
    return now;
  }
  void nap_ns(u64 ns) override { clock_.nap_ns(ns); }
  Engine* engine = nullptr;
  SessionIdx session = 0;
  u64 at_ns = 0;

 private:
  VirtualClock& clock_;
};

TEST_CASE("the end is told while the step waits for a slow disk") {
  const SmallModel model("llama", "q8_0");
  test::SimDisk disk(1);
  VirtualClock disk_clock;
  test::SimIo io(disk, disk_clock, 64);
  LateCancel clock(disk_clock);
  Config config = sliced_config(1);
  config.page_tokens = 16;
  config.kv_memory_bytes = 28 * 8192;  // of 128 groups
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  OpenEngine open(model.path(), config, &clock, &io);
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(1, 900));
  open.run();
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  while (engine.sessions().state(session).generation.n_generated < 3) engine.step();
  disk.script.latency_ns_min = disk.script.latency_ns_max = 8'000'000'000;
  struct Told {
    VirtualClock& clock;
    u64 at_ns = 0;
  } told{disk_clock};
  engine.at_early_end(
      [](void* context) {
        auto& self = *static_cast<Told*>(context);
        self.at_ns = self.clock.now_ns();
      },
      &told);
  clock.session = session;
  clock.at_ns = disk_clock.now_ns() + 2'000'000'000;
  clock.engine = &engine;
  engine.step();
  CHECK(disk_clock.now_ns() > clock.at_ns + 1'000'000'000);  // it did wait
  REQUIRE(told.at_ns >= clock.at_ns);
  CHECK(told.at_ns < clock.at_ns + 100'000'000);
  const test::Said said = test::read_all(engine, session);
  CHECK(said.done.finish == Finish::cancelled);
  CHECK(said.tokens.size() == 3);
  engine.at_early_end(nullptr, nullptr);
}

}  // namespace
}  // namespace tarn::engine::cancel_test
