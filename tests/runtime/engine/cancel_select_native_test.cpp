// Goal    a row that is dropped within a step, when its session is cancelled, leaves the index as
//         it was: whatever is read and answered next has the bits of a session that was cancelled
//         between two steps, and others beside it keep theirs. Before, at and after an index's
//         first use and its renewal, with a job under way at the end of an input, by several
//         methods; over memory and disk, also after a restart. So does an input's last slice.
// Method  a session beside another one, or alone, cancelled in the first layer of a step; the same
//         session cancelled in front of that step. How likely each later token was, as bytes.
#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/answer_bits.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::engine {
namespace {

using test::OpenEngine;
using test::SmallModel;
using test_bits::Answer;
using test_bits::read;

constexpr u32 kSwap = 16;

Config config_of(SelectMethod method) {
  Config config = test::small_config();
  config.select = test_bits::few(method, kSwap);
  config.context_tokens = 2048;
  config.batch_rows_max = 64;
  config.n_threads = 2;
  return config;
}

Answer say(Engine& engine, SessionIdx session, u32 n) {
  REQUIRE(engine.generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
  return read(engine, session);
}

struct Cancel {
  static void on_rows(void* context, const step::KvRows& rows) {
    auto& self = *static_cast<Cancel*>(context);
    if (rows.cache_layer == 0) self.engine->request_cancel(self.session);
  }
  Engine* engine;
  SessionIdx session;
};

// Inputs that are answered in turn, each with so many tokens; the last answer is cancelled.
struct Turns {
  struct Turn {
    u32 n_input, n_answer;
  };
  std::vector<Turn> turns;
  u32 n_next;               // tokens of the input that follows
  u32 n_cut = n_next == 0;  // before it
};

struct Outcome {
  u32 n_cancelled = 0;  // tokens of the answer that was cancelled
  Answer later{};
  Answer others{};
};

constexpr GenerateParams kOthers{.max_tokens = 50, .ignore_end = true};

// Cancelled in front of a step, in one of its own, or in one that another session's row is in.
enum class Where : u8 { in_front, alone, beside };

void prepare(Engine& engine, SessionIdx session, const Turns& turns) {
  for (u32 i = 0; i < turns.turns.size(); ++i) {
    REQUIRE(engine.feed(session, test::random_ids(i + 1, turns.turns[i].n_input)).has_value());
    if (i + 1 < turns.turns.size()) say(engine, session, turns.turns[i].n_answer);
  }
  REQUIRE(engine.generate(session, {.ignore_end = true}).has_value());
  while (engine.session_state(session).generation.n_generated < turns.turns.back().n_answer)
    engine.step();
}

// A step of so many sessions, in whose first layer one is cancelled. It is told its end within the
// step, and gets none of its tokens. A step of its own is not computed to the end, unless it
// selects.
void cancelled_step(Engine& engine, SessionIdx session, u32 n_sequences) {
  const u32 n_generated = engine.session_state(session).generation.n_generated;
  Cancel cancel{&engine, session};
  lab::Probe(engine).watch_kv({&Cancel::on_rows, &cancel});
  const StepTrace& trace = engine.step();
  lab::Probe(engine).watch_kv({});
  CHECK(trace.n_sequences == n_sequences);
  CHECK(trace.abandoned == (n_sequences == 1 && trace.n_slots_chosen == 0));
  CHECK(engine.session_state(session).state == SessionState::idle);
  CHECK(engine.session_state(session).generation.n_generated == n_generated);
}

Outcome outcome(OpenEngine& open, const Turns& turns, Where where) {
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with({}), other = open.session_with({1, 2, 3});
  prepare(engine, session, turns);
  if (where == Where::beside) REQUIRE(engine.generate(other, kOthers).has_value());
  if (where != Where::in_front) cancelled_step(engine, session, where == Where::beside ? 2 : 1);
  engine.request_cancel(session);
  Outcome outcome{.n_cancelled = static_cast<u32>(read(engine, session).tokens.size())};
  const u32 n_ids = engine.session_state(session).n_ids;
  if (turns.n_cut > 0) REQUIRE(engine.truncate(session, n_ids - turns.n_cut).has_value());
  REQUIRE(engine.feed(session, test::random_ids(9, turns.n_next)).has_value());
  outcome.later = say(engine, session, 40);
  if (where != Where::beside) REQUIRE(engine.generate(other, kOthers).has_value());
  outcome.others = read(engine, other);
  return outcome;
}

void require_undisturbed(const std::string& path, const Config& config, const Turns& turns) {
  OpenEngine calm(path, config);
  const Outcome want = outcome(calm, turns, Where::in_front);
  REQUIRE(want.n_cancelled == turns.turns.back().n_answer);
  for (const Where where : {Where::alone, Where::beside}) {
    CAPTURE(static_cast<u32>(where));
    OpenEngine open(path, config);
    const Outcome got = outcome(open, turns, where);
    CHECK(got.n_cancelled == want.n_cancelled);
    CHECK((got.later == want.later));
    CHECK((got.others == want.others));
  }
}

TEST_CASE("a row of a first answer is dropped as if it had not been, where the index turns, too") {
  const SmallModel model("llama", "q4_k");
  for (const SelectMethod method : {SelectMethod::pq, SelectMethod::quest, SelectMethod::random}) {
    if (test::kSlowBuild && method != SelectMethod::pq) continue;
    CAPTURE(kSelectMethodNames[static_cast<u64>(method)]);
    for (const u32 n : {1u, 2u, kSwap - 1, kSwap, kSwap + 1, kSwap + 9}) {
      CAPTURE(n);
      if (test::kSlowBuild && n != kSwap) continue;  // the row that swaps
      for (const u32 n_next : {1u, 60u}) {
        require_undisturbed(model.path(), config_of(method), {{{150, n}}, n_next});
      }
    }
  }
}

TEST_CASE("an index that is triggered by an answer's length, not by its input") {
  const SmallModel model("llama", "f16");
  constexpr u32 kTrigger = 2 * (4 + 8 + 16);  // select.context_min tokens
  for (const u32 n : {kTrigger - 21, kTrigger - 20, kTrigger - 19, kTrigger - 20 + kSwap}) {
    for (const u32 n_next : {0u, 30u}) {
      CAPTURE(n);
      CAPTURE(n_next);
      if (test::kSlowBuild && n != kTrigger - 20) continue;
      require_undisturbed(model.path(), config_of(SelectMethod::pq), {{{20, n}}, n_next});
    }
  }
}

TEST_CASE("a row is dropped beside a renewal") {
  const SmallModel model("llama", "q4_k");
  const Config config = config_of(SelectMethod::pq);
  for (const u32 n : {1u, 2u, kSwap - 1, kSwap, kSwap + 1}) {
    CAPTURE(n);
    if (test::kSlowBuild && n != kSwap) continue;
    const std::vector<Turns::Turn> said{{60, kSwap + 4}, {100, n}};
    for (const u32 n_next : {0u, 50u}) require_undisturbed(model.path(), config, {said, n_next});
    // Other tokens in their place, of which some have codes by then.
    if (n == kSwap) require_undisturbed(model.path(), config, {said, kSwap - 4, kSwap - 4});
  }
}

TEST_CASE("an input that ended while a job was under way ends again behind a dropped row") {
  const SmallModel model("llama", "q4_k");
  const Config config = config_of(SelectMethod::pq);
  for (const u32 n_input : {6u, 60u, 250u}) {  // to before the swap, and behind it
    CAPTURE(n_input);
    const std::vector<Turns::Turn> said{{150, 3}, {n_input, 1}};
    for (const u32 n_next : {0u, 4u, 60u}) {
      if (test::kSlowBuild && n_next != 4) continue;
      require_undisturbed(model.path(), config, {said, n_next});
    }
    if (!test::kSlowBuild) require_undisturbed(model.path(), config, {said, 0, 0});
  }
}

TEST_CASE("over memory and disk a dropped row leaves the bits of both") {
  const SmallModel model("llama", "q8_0");
  for (const SelectMethod method : {SelectMethod::full, SelectMethod::pq}) {
    if (test::kSlowBuild && method == SelectMethod::full) continue;
    CAPTURE(kSelectMethodNames[static_cast<u64>(method)]);
    Config config = config_of(method);
    config.page_tokens = 16;
    config.select.n_sinks = 20;
    config.select.n_local = 70;
    config.select.k = 48;
    for (const Turns& turns : {Turns{{{500, 30}, {100, 20}}, 50}, Turns{{{500, kSwap}}, 50},
                               Turns{{{300, 30}, {500, kSwap}}, 50}}) {
      CAPTURE(turns.turns.front().n_input);
      CAPTURE(turns.turns.back().n_answer);
      OpenEngine resident(model.path(), config);
      const Outcome want = outcome(resident, turns, Where::in_front);
      Config few = config;
      few.kv_memory_bytes = u64{42} * 8192;
      few.store.quota_bytes = kGiB;
      test::set_text(few.store.path, "store");
      for (const Where where : {Where::alone, Where::beside}) {
        test::SimDisk disk(1);
        VirtualClock clock;
        test::SimIo io(disk, clock, 64);
        OpenEngine streamed(model.path(), few, &clock, &io);
        REQUIRE(lab::Probe::kv(streamed.engine).has_tiers());
        const Outcome got = outcome(streamed, turns, where);
        CHECK(got.n_cancelled == want.n_cancelled);
        CHECK((got.later == want.later));
        CHECK((got.others == want.others));
      }
    }
  }
}

// An answer is cancelled, its session kept, and the next engine goes on with it.
Answer resumed_later(const std::string& path, const Config& config, const Turns& turns,
                     Where where) {
  test::SimDisk disk(1);
  {
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    OpenEngine open(path, config, &clock, &io);
    CHECK(open.engine.plan().tiers.extents.is_on());
    const SessionIdx session = open.session_with({});
    prepare(open.engine, session, turns);
    if (where == Where::alone) cancelled_step(open.engine, session, 1);
    open.engine.request_cancel(session);
    CHECK(read(open.engine, session).tokens.size() == turns.turns.back().n_answer);
    REQUIRE(open.engine.park(session, "talk").has_value());
  }
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  OpenEngine open(path, config, &clock, &io);
  const auto resumed = open.engine.resume("talk");
  REQUIRE(resumed.has_value());
  REQUIRE(open.engine.feed(resumed->idx, test::random_ids(9, turns.n_next)).has_value());
  return say(open.engine, resumed->idx, 40);
}

TEST_CASE("a kept session goes on after a restart as if a dropped row had not been") {
  const SmallModel model("llama", "q8_0");
  Config config = config_of(SelectMethod::pq);
  config.page_tokens = 16;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.k = 48;
  config.sessions_max = 2;  // so that extents find room
  config.kv_memory_bytes = u64{250} * 8192;
  config.store.sessions = true;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  for (const Turns& turns : {Turns{{{500, kSwap}}, 50}, Turns{{{300, 30}, {500, kSwap}}, 50}}) {
    CAPTURE(turns.turns.front().n_input);
    const Answer want = resumed_later(model.path(), config, turns, Where::in_front);
    CHECK((resumed_later(model.path(), config, turns, Where::alone) == want));
  }
}

// The first has the spare set; the second fills its own one, and its row waits for that.
TEST_CASE("of two indexes that are due in one step, and renewed beside each other, either is off") {
  const SmallModel model("llama", "q4_k");
  const std::array<u32, 2> n_inputs{60, 100};
  const auto said = [&](u32 which, bool in_step) {
    OpenEngine open(model.path(), config_of(SelectMethod::pq));
    Engine& engine = open.engine;
    const std::array<SessionIdx, 2> both{open.session_with({}), open.session_with({})};
    for (u32 turn = 0; turn < 2; ++turn) {
      for (const SessionIdx session : both) {
        const std::vector<u32> ids = test::random_ids(10 * session + turn, n_inputs[turn]);
        REQUIRE(engine.feed(session, ids).has_value());
      }
      open.run();
      const GenerateParams params{.max_tokens = turn == 0 ? kSwap + 4 : 40, .ignore_end = true};
      for (const SessionIdx session : both) REQUIRE(engine.generate(session, params).has_value());
      for (const SessionIdx session : both) {
        if (turn == 0) read(engine, session);
      }
    }
    const SessionIdx session = both[which];
    while (engine.session_state(session).generation.n_generated < kSwap) engine.step();
    CHECK(engine.session_state(both[1 - which]).generation.n_generated == kSwap);
    const u32 n_held = in_step ? which * (engine.spec().n_cache_layers - 1) : 0;
    for (u32 i = 0; i < n_held; ++i) CHECK(engine.step().n_sequences == 1);
    if (in_step) cancelled_step(engine, session, 1 + which);
    engine.request_cancel(session);
    std::array<Answer, 3> out{};
    out[0] = read(engine, session);
    REQUIRE(engine.feed(session, test::random_ids(9, 50)).has_value());
    out[1] = say(engine, session, 40);
    out[2] = read(engine, both[1 - which]);
    return out;
  };
  for (const u32 which : {0u, 1u}) {
    CAPTURE(which);
    CHECK((said(which, /*in_step=*/true) == said(which, /*in_step=*/false)));
  }
}

TEST_CASE("the slice that ends an input, and begins its index, is dropped in its layers") {
  const SmallModel model("llama", "q4_k");
  constexpr u32 kSlice = 64, kInput = 150, kNext = 90;
  const std::vector<u32> ids = test::random_ids(1, kInput), next = test::random_ids(9, kNext);
  for (const u32 swap_tokens : {1u, kSwap}) {
    CAPTURE(swap_tokens);
    Config config = config_of(SelectMethod::pq);
    config.select.swap_tokens = swap_tokens;
    OpenEngine fresh(model.path(), config);
    std::vector<u32> kept(ids.begin(), ids.begin() + 2 * kSlice);
    kept.insert(kept.end(), next.begin(), next.end());
    const Answer want = say(fresh.engine, fresh.session_with(kept), 40);
    const SessionIdx calm = fresh.session_with({1, 2, 3});
    REQUIRE(fresh.engine.generate(calm, kOthers).has_value());
    const Answer want_others = read(fresh.engine, calm);
    for (const Where where : {Where::alone, Where::beside}) {
      CAPTURE(static_cast<u32>(where));
      OpenEngine open(model.path(), config);
      Engine& engine = open.engine;
      const SessionIdx other = open.session_with({1, 2, 3});
      open.run();
      const SessionIdx session = open.session_with(ids);
      REQUIRE(engine.generate(session, {.ignore_end = true}).has_value());
      const auto n_slots = [&] { return engine.session_state(session).sequence.n_slots(); };
      while (n_slots() < 2 * kSlice) engine.step();
      if (where == Where::beside) REQUIRE(engine.generate(other, kOthers).has_value());
      cancelled_step(engine, session, where == Where::beside ? 2 : 1);
      CHECK(engine.session_state(session).n_ids == 2 * kSlice);
      CHECK(n_slots() == 2 * kSlice);
      CHECK(read(engine, session).tokens.empty());
      REQUIRE(engine.feed(session, next).has_value());
      CHECK((say(engine, session, 40) == want));
      if (where == Where::alone) REQUIRE(engine.generate(other, kOthers).has_value());
      CHECK((read(engine, other) == want_others));
    }
  }
}

}  // namespace
}  // namespace tarn::engine
