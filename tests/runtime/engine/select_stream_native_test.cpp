// Goal    decoding by selection over KV that lies partly on disk gives the bits of KV in memory: by
//         every method and KV type, while an index is built, used, rebuilt, cut and forked; reads
//         sectors, not groups; a slot that cannot be read ends its generation and no other.
// Method  the same calls on an engine with all KV in memory and on one with frames for a part of
//         the context, over a simulated disk; tokens and logits of sampled rows compared as bytes.
#include <doctest/doctest.h>

#include <array>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::select_stream_native_test {
namespace {

using namespace test_selected;

void check_counters(const Engine& engine, SelectMethod method) {
  const DiskTrace& disk = engine.status().counters.disk;
  CHECK(lab::Probe::tiers(engine).mover.stats().n_lost == 0);
  if (method == SelectMethod::window) return;  // what it reads is near
  CHECK(disk.n_far_slots > 0);
  CHECK(disk.n_sector_reads > 0);
  CHECK(disk.bytes_of_slots > 0);
  CHECK(disk.bytes_of_slots <= disk.bytes_sectors);  // a page of Quest is a sector
  CHECK((disk.n_cached_slots > 0) == (engine.plan().tiers.cache_slots > 0));
}

TEST_CASE("selection over memory and disk gives the bits of KV in memory") {
  const SmallModel model("llama", "q8_0");
  for (const SelectMethod method : kMethods) {
    for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0}) {
      CAPTURE(kSelectMethodNames[static_cast<u64>(method)]);
      CAPTURE(type);
      // Types differ in kernels and in bytes of a slot, methods in what they read of it.
      if (test::kSlowBuild && type == KvTypeChoice::q8_0) continue;
      if (test::kSlowBuild && type == KvTypeChoice::q4_0 && method != SelectMethod::pq) continue;
      OpenEngine resident(model.path(), config_of(method, Memory::whole, type));
      const Answer want = answer_of(resident);
      for (const Memory memory : {Memory::little, Memory::some}) {
        if (memory == Memory::some && method == SelectMethod::window) continue;
        test::SimDisk disk(1);
        VirtualClock clock;
        test::SimIo io(disk, clock, 64);
        OpenEngine streamed(model.path(), config_of(method, memory, type), &clock, &io);
        REQUIRE(lab::Probe::kv(streamed.engine).has_tiers());
        CHECK((streamed.engine.plan().tiers.cache_slots > 0) == (memory == Memory::some));
        require_same(want, answer_of(streamed));
        check_counters(streamed.engine, method);
      }
    }
  }
}

TEST_CASE("how many slots a cache keeps changes what it has and no bit") {
  const SmallModel model("llama", "q8_0");
  OpenEngine resident(model.path(), config_of(SelectMethod::pq, Memory::whole));
  const Answer want = answer_of(resident);
  std::vector<u64> hits;
  for (const u32 cache_tokens : {0u, 40u, 9u}) {
    CAPTURE(cache_tokens);
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    Config config = config_of(SelectMethod::pq, Memory::some);
    config.select.cache_tokens = cache_tokens;
    OpenEngine streamed(model.path(), config, &clock, &io);
    const plan::TierShape& tiers = streamed.engine.plan().tiers;
    if (cache_tokens != 0) CHECK(tiers.cache_slots == cache_tokens);
    require_same(want, answer_of(streamed));
    hits.push_back(streamed.engine.status().counters.disk.n_cached_slots);
  }
  MESSAGE("slots found in the cache: " << hits[0] << ", " << hits[1] << ", " << hits[2]);
  CHECK(hits[0] > hits[1]);
  CHECK(hits[1] > hits[2]);
  CHECK(hits[2] > 0);
}

// What leaves memory takes a second, and what is wanted of it comes as late: a token that has just
// left the local window is a candidate all the same.
TEST_CASE("a disk that takes a second a request changes no bit") {
  const SmallModel model("llama", "q8_0");
  OpenEngine resident(model.path(), config_of(SelectMethod::pq, Memory::whole));
  const Answer want = answer_of(resident);
  for (const Memory memory : {Memory::little, Memory::roomy}) {
    test::SimDisk disk(1);
    disk.script.latency_ns_min = 1'000'000'000;
    disk.script.latency_ns_max = 1'100'000'000;
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    OpenEngine streamed(model.path(), config_of(SelectMethod::pq, memory), &clock, &io);
    require_same(want, answer_of(streamed));
    CHECK(clock.now_ns() > 100'000'000'000);
  }
}

// Steps until `is_reached()`, taking the session's tokens, which have room for so many alone.
template <class Reached>
void step_until(Engine& engine, SessionIdx session, Reached is_reached) {
  Event event;
  std::array<char, EventRing::kTextBytes> text;
  while (!is_reached()) {
    REQUIRE(engine.has_work());
    engine.step();
    while (!is_reached() && engine.take_event(session, &event, text)) {
    }
  }
}

TEST_CASE("a slot that cannot be read ends its generation, and no other") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, kPrompt), others = test::random_ids(8, 40);
  std::vector<u32> want, want_other;
  {
    OpenEngine resident(model.path(), config_of(SelectMethod::pq, Memory::whole));
    const SessionIdx session = resident.session_with(ids), other = resident.session_with(others);
    want = say(resident.engine, session, 40);
    want_other = say(resident.engine, other, 60);
  }
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  OpenEngine open(model.path(), config_of(SelectMethod::pq, Memory::some), &clock, &io);
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(ids);
  REQUIRE(engine.generate(session, {.max_tokens = 200, .ignore_end = true}).has_value());
  const auto& stats = lab::Probe::tiers(engine).mover.stats();
  step_until(engine, session, [&] { return stats.n_gather_reads > 0; });
  const SessionIdx other = open.session_with(others);
  REQUIRE(engine.generate(other, {.max_tokens = 60, .ignore_end = true}).has_value());
  // Every read comes back with a wrong bit, until one was seen.
  disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  step_until(engine, session, [&] { return stats.n_lost > 0; });
  disk.script.ppm = {};
  const test::Said failed = test::read_all(engine, session);
  CHECK(failed.done.finish == Finish::error);
  CHECK(failed.done.status == Status::io_failed);
  CHECK(test::read_all(engine, other).tokens == want_other);
  // The remedy.
  REQUIRE(engine.truncate(session, kPrompt).has_value());
  CHECK(say(engine, session, 40) == want);
}

TEST_CASE("keys that cannot be read for a clustering end the generation that needs it") {
  const SmallModel model("llama", "q8_0");
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  OpenEngine open(model.path(), config_of(SelectMethod::pq, Memory::little), &clock, &io);
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with(test::random_ids(7, kPrompt));
  const std::vector<u32> first = say(engine, session, 1);  // what follows is clustered idly
  disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  open.run();
  CHECK(lab::Probe::tiers(engine).mover.stats().n_lost > 0);
  disk.script.ppm = {};
  REQUIRE(engine.generate(session, {.max_tokens = 30, .ignore_end = true}).has_value());
  const test::Said failed = test::read_all(engine, session);
  CHECK(failed.done.finish == Finish::error);
  CHECK(failed.done.status == Status::io_failed);
  CHECK(failed.tokens.empty());
  REQUIRE(engine.truncate(session, kPrompt).has_value());
  CHECK(say(engine, session, 1) == first);
}

}  // namespace
}  // namespace tarn::engine::select_stream_native_test
