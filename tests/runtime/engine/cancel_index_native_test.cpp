// Goal    who is cancelled while an index is made, for the first time, anew or after a restart,
//         hears it at once, whether it is the index' own session or one beside it; what is said
//         later has the bits of a session that was cancelled between two steps. A row waits for its
//         index a layer a step, while others' go on.
// Method  the cancel comes from the clock that the engine reads: at its n-th reading, over all
//         parts of an answer's first steps; or at a moment of a simulated disk's time, whose
//         requests take so long that the end must have been told long before the layer is done. How
//         likely each later token was, as bytes.
#include <doctest/doctest.h>

#include "tests/runtime/engine/answer_bits.h"
#include "tests/support/cancelling_clock.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::engine {
namespace {

using test::CancellingClock;
using test::OpenEngine;
using test::SmallModel;
using test_bits::Answer;

constexpr u32 kContext = 2048;

// Of 256 groups of KV so many may be in memory, or all of them: of many, extents have their part.
enum class Frames : u32 { all = 0, few = 42, many = 250 };

Config config_of(u32 swap_tokens, Frames frames) {
  Config config = test::small_config();
  config.select = test_bits::few(SelectMethod::pq, swap_tokens);
  config.context_tokens = kContext;
  config.sessions_max = 2;
  config.batch_rows_max = 64;
  config.n_threads = 1;  // or the n-th reading is another one in each run
  config.page_tokens = 16;
  if (frames == Frames::all) return config;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.k = 48;
  config.kv_memory_bytes = static_cast<u64>(frames) * 8192;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  return config;
}

struct World {
  World(const SmallModel& model, const Config& config, u64 seed = 1)
      : disk(seed), io(disk, clock.disk, 64), open(model.path(), config, &clock, &io) {}
  Engine& engine() { return open.engine; }

  test::SimDisk disk;
  CancellingClock clock{};
  test::SimIo io;
  OpenEngine open;
};

// An input of so many tokens, whose answer is cancelled; what is said to the next one.
struct Outcome {
  u32 n_said = 0;
  Answer later{};
};

// `other`, if there is one, has an input of its own.
SessionIdx begin(World& world, u32 n_input, SessionIdx* other = nullptr, u32 n_answer = 40) {
  const SessionIdx session = world.open.session_with(test::random_ids(1, n_input));
  if (other != nullptr) *other = world.open.session_with(test::random_ids(2, 30));
  world.open.run();
  const GenerateParams params{.max_tokens = n_answer, .ignore_end = true};
  REQUIRE(world.engine().generate(session, params).has_value());
  return session;
}

Outcome finish(World& world, SessionIdx session) {
  Outcome outcome{.n_said =
                      static_cast<u32>(test_bits::read(world.engine(), session).tokens.size())};
  REQUIRE(world.engine().feed(session, test::random_ids(9, 30)).has_value());
  REQUIRE(world.engine().generate(session, {.max_tokens = 30, .ignore_end = true}).has_value());
  outcome.later = test_bits::read(world.engine(), session);
  return outcome;
}

// Cancelled between the step of this answer's n-th token and the next one.
Outcome between_steps(World& world, u32 n_input, u32 n_said) {
  const SessionIdx session = begin(world, n_input);
  while (world.engine().session_state(session).generation.n_generated < n_said)
    world.engine().step();
  world.engine().request_cancel(session);
  return finish(world, session);
}

TEST_CASE(
    "a cancel at any moment of an answer's first steps leaves what one between two steps does") {
  const SmallModel model("llama", "q8_0");
  for (const Frames frames : {Frames::all, Frames::few, Frames::many}) {
    for (const u32 swap_tokens : {1u, 2u, 3u}) {
      if (test::kSlowBuild && (swap_tokens != 1 || frames != Frames::many)) continue;
      CAPTURE(static_cast<u32>(frames));
      CAPTURE(swap_tokens);
      const u32 n_input = frames == Frames::all ? 150 : 500;
      const Config config = config_of(swap_tokens, frames);
      std::vector<Outcome> want;
      for (u32 n = 0; n <= swap_tokens + 2; ++n) {
        World world(model, config);
        want.push_back(between_steps(world, n_input, n));
        REQUIRE(want.back().n_said == n);
        CHECK(world.engine().plan().tiers.extents.is_on() == (frames == Frames::many));
      }
      u64 n_readings = 0;  // from the generation's begin until the last of these tokens
      {
        World world(model, config);
        const SessionIdx session = begin(world, n_input);
        const u64 before = world.clock.n_readings;
        while (world.engine().session_state(session).generation.n_generated < want.size() - 1) {
          world.engine().step();
        }
        n_readings = world.clock.n_readings - before;
      }
      u32 n_in_the_making = 0;
      const u64 n_cases = test::kSlowBuild ? 6 : 40;
      for (u64 i = 0; i < n_cases; ++i) {
        const u64 at = 1 + i * (n_readings - 1) / n_cases;
        CAPTURE(at);
        World world(model, config);
        const SessionIdx session = begin(world, n_input);
        world.clock.arm(world.engine(), session, at);
        bool was_making = false;
        while (world.clock.is_armed()) {
          const StepTrace& trace = world.engine().step();
          was_making = trace.n_rows == 0 && trace.n_decode_rows == 0;
        }
        n_in_the_making += was_making;
        const Outcome got = finish(world, session);
        REQUIRE(got.n_said < want.size());
        CHECK((got.later == want[got.n_said].later));
      }
      if (swap_tokens == 1 && !test::kSlowBuild) CHECK(n_in_the_making > 0);
    }
  }
}

struct Told {
  explicit Told(World& of_world) : world(of_world) {
    world.engine().at_early_end(
        [](void* context) {
          auto& self = *static_cast<Told*>(context);
          if (self.at_ns == 0) self.at_ns = self.world.clock.disk.now_ns();
        },
        this);
  }
  ~Told() { world.engine().at_early_end(nullptr, nullptr); }
  World& world;
  u64 at_ns = 0;
};

enum class Whose : u8 { own, others_prompt, others_answer };

TEST_CASE("the end is told while an index is made over a slow disk") {
  const SmallModel model("llama", "q8_0");
  constexpr u64 kSlowNs = 300'000'000, kAfterNs = 400'000'000;
  for (const Whose whose : {Whose::own, Whose::others_prompt, Whose::others_answer}) {
    for (const u32 swap_tokens : {1u, 4u}) {
      CAPTURE(static_cast<u32>(whose));
      CAPTURE(swap_tokens);
      World world(model, config_of(swap_tokens, Frames::few));
      Engine& engine = world.engine();
      SessionIdx other = 0;
      const SessionIdx session = begin(world, 900, &other);
      if (whose == Whose::others_answer) {
        REQUIRE(engine.generate(other, {.ignore_end = true}).has_value());
      }
      while (engine.session_state(session).generation.n_generated < 1) engine.step();
      if (whose == Whose::others_prompt) {
        REQUIRE(engine.feed(other, test::random_ids(3, 40)).has_value());
      }
      world.disk.script.latency_ns_min = world.disk.script.latency_ns_max = kSlowNs;
      Told told(world);
      const u64 at_ns = world.clock.disk.now_ns() + kAfterNs;
      world.clock.arm_at(engine, whose == Whose::own ? session : other, at_ns);
      const StepTrace& trace = engine.step();
      CHECK_FALSE(world.clock.is_armed());
      if (whose == Whose::own || swap_tokens == 1) CHECK(trace.n_tokens_out == 0);
      REQUIRE(told.at_ns >= at_ns);
      CHECK(told.at_ns < at_ns + 100'000'000);
      if (whose == Whose::own) {
        CHECK(engine.session_state(session).state == SessionState::idle);
      } else {
        CHECK(engine.session_state(other).state == SessionState::idle);
        CHECK(engine.session_state(session).state == SessionState::generating);
      }
      world.disk.script = {};
      if (whose == Whose::others_prompt) continue;
      const test::Said said = test::read_all(engine, whose == Whose::own ? session : other);
      CHECK(said.done.finish == Finish::cancelled);
    }
  }
}

// Two sessions whose rebuilds are due at their second tokens; the second one, which has not got the
// spare set, is cancelled there: at once, or after so long of a slow disk's time.
Outcome cancel_waiting(const SmallModel& model, u64 after_ns) {
  constexpr u64 kSlowNs = 300'000'000;
  World world(model, config_of(1, Frames::few));
  Engine& engine = world.engine();
  const SessionIdx first = world.open.session_with(test::random_ids(1, 300));
  const SessionIdx second = world.open.session_with(test::random_ids(2, 300));
  for (const SessionIdx idx : {first, second}) {
    world.open.run();
    REQUIRE(engine.generate(idx, {.max_tokens = 4, .ignore_end = true}).has_value());
    CHECK(test_bits::read(engine, idx).tokens.size() == 4);
    REQUIRE(engine.feed(idx, test::random_ids(3, 500)).has_value());
  }
  world.open.run();
  for (const SessionIdx idx : {first, second}) {
    REQUIRE(engine.generate(idx, {.max_tokens = 40, .ignore_end = true}).has_value());
  }
  engine.step();
  REQUIRE(engine.session_state(second).generation.n_generated == 1);
  Told told(world);
  if (after_ns > 0) {
    world.disk.script.latency_ns_min = world.disk.script.latency_ns_max = kSlowNs;
    const u64 at_ns = world.clock.disk.now_ns() + after_ns;
    world.clock.arm_at(engine, second, at_ns);
    while (world.clock.is_armed()) CHECK(engine.step().n_cluster_units <= 2);
    REQUIRE(told.at_ns >= at_ns);
    CHECK(told.at_ns < at_ns + 100'000'000);
    CHECK(engine.session_state(first).state == SessionState::generating);
  } else {
    engine.request_cancel(second);
    engine.step();
  }
  world.disk.script = {};
  CHECK(test_bits::read(engine, first).tokens.size() == 40);
  return finish(world, second);
}

TEST_CASE("who is cancelled while its own set is filled anew hears it at once, and goes on so") {
  const SmallModel model("llama", "q8_0");
  const Outcome want = cancel_waiting(model, 0);
  CHECK(want.n_said == 1);
  for (const u64 after_ms : {400u, 4'800u, 9'600u, 19'200u}) {
    CAPTURE(after_ms);
    const Outcome got = cancel_waiting(model, after_ms * 1'000'000);
    CHECK(got.n_said == 1);
    CHECK((got.later == want.later));
  }
}

// Each one that is told its end has the next one cancelled.
struct Chain {
  static void on_end(void* context) {
    auto& self = *static_cast<Chain*>(context);
    ++self.n_told;
    if (self.n_told < self.sessions.size()) {
      self.engine.request_cancel(self.sessions[self.n_told]);
    }
  }
  Engine& engine;
  std::vector<SessionIdx> sessions{};
  u64 n_told = 0;
};

// A session whose index is about to be made, and so many others, cancelled in turn in its making,
// itself last. What it says later.
Answer cancel_in_turn(const SmallModel& model, u32 n_others) {
  Config config = config_of(1, Frames::all);
  config.sessions_max = n_others + 1;
  CancellingClock clock;
  OpenEngine open(model.path(), config, &clock);
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(1, 150));
  Chain chain{engine};
  for (u32 i = 0; i < n_others; ++i) chain.sessions.push_back(open.session_with({1, 2, 3}));
  open.run();
  REQUIRE(engine.generate(session, {.max_tokens = 20, .ignore_end = true}).has_value());
  while (engine.session_state(session).generation.n_generated < 1) engine.step();
  for (const SessionIdx other : chain.sessions) {
    REQUIRE(engine.generate(other, {.ignore_end = true}).has_value());
  }
  chain.sessions.push_back(session);
  engine.at_early_end(&Chain::on_end, &chain);
  clock.arm(engine, chain.sessions[0], 2);  // the first reading is in front of the step
  const StepTrace& trace = engine.step();
  CHECK_FALSE(clock.is_armed());
  CHECK(trace.n_tokens_out == 0);
  CHECK(chain.n_told == chain.sessions.size());
  engine.at_early_end(nullptr, nullptr);
  CHECK(test_bits::read(engine, session).tokens.size() == 1);
  REQUIRE(engine.feed(session, test::random_ids(9, 30)).has_value());
  REQUIRE(engine.generate(session, {.max_tokens = 30, .ignore_end = true}).has_value());
  return test_bits::read(engine, session);
}

TEST_CASE("in memory a cancel is heard between two tasks of an index") {
  const SmallModel model("llama", "q8_0");
  World calm(model, config_of(1, Frames::all));
  const u32 n_kv_heads = calm.engine().spec().n_kv_heads;
  const Answer want = between_steps(calm, 150, 1).later;
  // One behind the sample; then a KV head and a part, to be trained and coded.
  const u32 n_tasks = n_kv_heads * test_bits::few(SelectMethod::pq).n_subspaces;
  for (u32 n_others = 0; n_others <= 2 * n_tasks; ++n_others) {
    CAPTURE(n_others);
    CHECK((cancel_in_turn(model, n_others) == want));
  }
}

TEST_CASE("the end is told while the row with which an index begins to serve waits for the disk") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kSwap = 4;
  constexpr u64 kSlowNs = 8'000'000'000, kAfterNs = 400'000'000;
  World world(model, config_of(kSwap, Frames::few));
  Engine& engine = world.engine();
  const SessionIdx session = begin(world, 900);
  while (engine.session_state(session).generation.n_generated < kSwap) engine.step();
  world.disk.script.latency_ns_min = world.disk.script.latency_ns_max = kSlowNs;
  Told told(world);
  const u64 at_ns = world.clock.disk.now_ns() + kAfterNs;
  world.clock.arm_at(engine, session, at_ns);
  const StepTrace& trace = engine.step();
  CHECK_FALSE(world.clock.is_armed());
  CHECK(trace.n_decode_rows == 1);
  CHECK(trace.n_slots_chosen > 0);
  CHECK(trace.n_tokens_out == 0);
  REQUIRE(told.at_ns >= at_ns);
  CHECK(told.at_ns < at_ns + 100'000'000);
  CHECK(world.clock.disk.now_ns() > at_ns + 1'000'000'000);  // it did wait
  world.disk.script = {};
  const test::Said said = test::read_all(engine, session);
  CHECK(said.done.finish == Finish::cancelled);
  CHECK(said.tokens.size() == kSwap);
}

TEST_CASE(
    "a row waits for its index a layer a step, and another session's answer goes on meanwhile") {
  const SmallModel model("llama", "q8_0");
  for (const Frames frames : {Frames::all, Frames::few, Frames::many}) {
    CAPTURE(static_cast<u32>(frames));
    const Config config = config_of(1, frames);
    const u32 n_input = frames == Frames::all ? 150 : 500;
    const auto answer = [&](bool has_other) {
      World world(model, config);
      Engine& engine = world.engine();
      SessionIdx other = 0;
      const SessionIdx session = begin(world, n_input, &other);
      if (has_other) REQUIRE(engine.generate(other, {.max_tokens = 30, .ignore_end = true}));
      while (engine.session_state(session).generation.n_generated < 1) engine.step();
      u32 n_held = 0, n_others = 0;
      while (engine.session_state(session).generation.n_generated < 2) {
        const u32 before = engine.session_state(other).generation.n_generated;
        const StepTrace& trace = engine.step();
        CHECK(trace.n_cluster_units <= 1);
        n_held += trace.n_decode_rows == (has_other ? 1 : 0);
        n_others += engine.session_state(other).generation.n_generated - before;
      }
      CHECK(n_held == engine.spec().n_cache_layers - 1);  // the last one's step has the row, too
      if (has_other) CHECK(n_others == engine.spec().n_cache_layers);
      return test_bits::read(engine, session);
    };
    CHECK((answer(false) == answer(true)));
  }
}

TEST_CASE("a fork at any token of a job has an index of its own made, a layer a step, too") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kSwap = 2, kSaid = 20;  // of two layers: a fork has both to be made at its swap
  const Config config = config_of(kSwap, Frames::all);
  World whole(model, config);
  const Answer want = test_bits::read(whole.engine(), begin(whole, 150));
  REQUIRE(want.tokens.size() > kSaid);
  for (u32 n_said = 1; n_said <= kSwap + 1; ++n_said) {
    CAPTURE(n_said);
    World world(model, config);
    Engine& engine = world.engine();
    const SessionIdx session = begin(world, 150, nullptr, n_said);
    while (engine.session_state(session).state == SessionState::generating) engine.step();
    const Result<SessionIdx> fork = engine.fork(session);
    REQUIRE(fork.has_value());
    engine.destroy_session(session);
    REQUIRE(engine.generate(*fork, {.max_tokens = kSaid - n_said, .ignore_end = true}).has_value());
    while (engine.session_state(*fork).state == SessionState::generating) {
      CHECK(engine.step().n_cluster_units <= 1);
    }
    const std::vector<u32> rest(want.tokens.begin() + n_said, want.tokens.begin() + kSaid);
    CHECK(test_bits::read(engine, *fork).tokens == rest);
  }
}

// A session that selects, kept by an engine that ends.
void keep_one(const SmallModel& model, const Config& config, test::SimDisk& disk) {
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  OpenEngine open(model.path(), config, &clock, &io);
  const SessionIdx session = open.session_with(test::random_ids(1, 500));
  REQUIRE(open.engine.generate(session, {.max_tokens = 12, .ignore_end = true}).has_value());
  CHECK(test::read_all(open.engine, session).tokens.size() == 12);
  REQUIRE(open.engine.park(session, "talk").has_value());
}

TEST_CASE("who is cancelled while an index is made again after a restart hears it at once") {
  const SmallModel model("llama", "q8_0");
  Config config = config_of(1, Frames::few);
  config.store.sessions = true;
  constexpr u64 kSlowNs = 300'000'000, kAfterNs = 400'000'000;
  std::vector<Answer> later;
  test::SimDisk kept(1);
  keep_one(model, config, kept);
  for (const bool in_the_making : {false, true}) {
    CAPTURE(in_the_making);
    test::SimDisk disk = kept;
    CancellingClock clock;
    test::SimIo io(disk, clock.disk, 64);
    OpenEngine open(model.path(), config, &clock, &io);
    const auto resumed = open.engine.resume("talk");
    REQUIRE(resumed.has_value());
    const SessionIdx session = resumed->idx;
    REQUIRE(open.engine.feed(session, test::random_ids(5, 9)).has_value());
    REQUIRE(open.engine.generate(session, {.max_tokens = 8, .ignore_end = true}).has_value());
    while (open.engine.session_state(session).generation.n_generated < 1) open.engine.step();
    if (!in_the_making) open.engine.request_cancel(session);
    struct ToldAt {
      CancellingClock& clock;
      u64 at_ns = 0;
    } told{clock};
    open.engine.at_early_end(
        [](void* context) {
          auto& self = *static_cast<ToldAt*>(context);
          self.at_ns = self.clock.disk.now_ns();
        },
        &told);
    const u64 at_ns = clock.disk.now_ns() + kAfterNs;
    if (in_the_making) {
      disk.script.latency_ns_min = disk.script.latency_ns_max = kSlowNs;
      clock.arm_at(open.engine, session, at_ns);
      while (clock.is_armed()) CHECK(open.engine.step().n_tokens_out == 0);
      CHECK(told.at_ns >= at_ns);
      CHECK(told.at_ns < at_ns + 100'000'000);
      disk.script = {};
    }
    open.engine.at_early_end(nullptr, nullptr);
    const test::Said said = test::read_all(open.engine, session);
    CHECK(said.tokens.size() == 1);
    CHECK(said.done.finish == Finish::cancelled);
    REQUIRE(open.engine.feed(session, test::random_ids(6, 9)).has_value());
    REQUIRE(open.engine.generate(session, {.max_tokens = 20, .ignore_end = true}).has_value());
    later.push_back(test_bits::read(open.engine, session));
  }
  CHECK((later[0] == later[1]));
}

}  // namespace
}  // namespace tarn::engine
