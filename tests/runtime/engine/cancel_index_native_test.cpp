// Goal    a cancel is heard at once while an index is made. A row waits for its index a layer a
//         step, while others' go on. (Later answers have the bits of an engine that never cancels:
//         sim/select_random.)
// Method  the cancel comes at a moment of a simulated disk's time, whose requests take so long that
//         the end must have been told long before the layer is done.
#include <doctest/doctest.h>

#include "tests/runtime/engine/answer_bits.h"
#include "tests/support/cancelling_clock.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine::cancel_index_native_test {
namespace {

using test::CancellingClock;
using test::OpenEngine;
using test::SmallModel;

constexpr u32 kContext = 2048;

// Of 256 groups of KV so many may be in memory, or all of them: of many, extents have their part.
enum class Frames : u32 { all = 0, few = 42, many = 250 };

Config config_of(u32 index_delay_tokens, Frames frames) {
  Config config = test::small_config();
  config.select = test_bits::few(SelectMethod::pq, index_delay_tokens);
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

// `other`, if there is one, has an input of its own.
SessionIdx begin(World& world, u32 n_input, SessionIdx* other = nullptr, u32 n_answer = 40) {
  const SessionIdx session = world.open.session_with(test::random_ids(1, n_input));
  if (other != nullptr) *other = world.open.session_with(test::random_ids(2, 30));
  world.open.run();
  const GenerateParams params{.max_tokens = n_answer, .ignore_end = true};
  REQUIRE(world.engine().sessions().generate(session, params).has_value());
  return session;
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
    for (const u32 index_delay_tokens : {1u, 4u}) {
      CAPTURE(static_cast<u32>(whose));
      CAPTURE(index_delay_tokens);
      World world(model, config_of(index_delay_tokens, Frames::few));
      Engine& engine = world.engine();
      SessionIdx other = 0;
      const SessionIdx session = begin(world, 900, &other);
      if (whose == Whose::others_answer) {
        REQUIRE(engine.sessions().generate(other, {.ignore_end = true}).has_value());
      }
      while (engine.sessions().state(session).generation.n_generated < 1) engine.step();
      if (whose == Whose::others_prompt) {
        REQUIRE(engine.sessions().feed(other, test::random_ids(3, 40)).has_value());
      }
      world.disk.script.latency_ns_min = world.disk.script.latency_ns_max = kSlowNs;
      Told told(world);
      const u64 at_ns = world.clock.disk.now_ns() + kAfterNs;
      world.clock.arm_at(engine, whose == Whose::own ? session : other, at_ns);
      const StepTrace& trace = engine.step();
      CHECK_FALSE(world.clock.is_armed());
      if (whose == Whose::own || index_delay_tokens == 1) CHECK(trace.n_tokens_out == 0);
      REQUIRE(told.at_ns >= at_ns);
      CHECK(told.at_ns < at_ns + 100'000'000);
      if (whose == Whose::own) {
        CHECK(engine.sessions().state(session).state == SessionState::idle);
      } else {
        CHECK(engine.sessions().state(other).state == SessionState::idle);
        CHECK(engine.sessions().state(session).state == SessionState::generating);
      }
      world.disk.script = {};
      if (whose == Whose::others_prompt) continue;
      const test::Said said = test::read_all(engine, whose == Whose::own ? session : other);
      CHECK(said.done.finish == Finish::cancelled);
    }
  }
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
      if (has_other)
        REQUIRE(engine.sessions().generate(other, {.max_tokens = 30, .ignore_end = true}));
      while (engine.sessions().state(session).generation.n_generated < 1) engine.step();
      u32 n_held = 0, n_others = 0;
      while (engine.sessions().state(session).generation.n_generated < 2) {
        const u32 before = engine.sessions().state(other).generation.n_generated;
        const StepTrace& trace = engine.step();
        CHECK(trace.n_cluster_units <= 1);
        n_held += trace.n_decode_rows == (has_other ? 1 : 0);
        n_others += engine.sessions().state(other).generation.n_generated - before;
      }
      CHECK(n_held == engine.spec().n_cache_layers - 1);  // the last one's step has the row, too
      if (has_other) CHECK(n_others == engine.spec().n_cache_layers);
      return test_bits::read(engine, session);
    };
    CHECK((answer(false) == answer(true)));
  }
}

}  // namespace
}  // namespace tarn::engine::cancel_index_native_test
