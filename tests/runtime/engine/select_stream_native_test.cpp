// Goal    decoding by selection over KV that lies partly on disk gives the bits of KV in memory: by
//         every method and KV type, while an index is built, used, rebuilt, cut and forked; reads
//         sectors, not groups; a slot that cannot be read ends its generation and no other.
// Method  the same calls on an engine with all KV in memory and on one with frames for a part of
//         the context, over a simulated disk; tokens and logits of sampled rows compared as bytes.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine {
namespace {

using test::LogitsRecord;
using test::OpenEngine;
using test::SmallModel;

constexpr u32 kContext = 2048;
constexpr u32 kPage = 16;
constexpr u32 kPrompt = 900;
constexpr u64 kGroupBytes = 8192;  // of the model's KV in f16
constexpr SelectMethod kMethods[] = {SelectMethod::pq, SelectMethod::quest, SelectMethod::window,
                                     SelectMethod::random};

// 512 keys of 900 are a sample, so that not all are clustered.
enum class Memory { whole, little, some };  // little: no cache; some: with one

Config config_of(SelectMethod method, Memory memory, KvTypeChoice kv_type = KvTypeChoice::f16) {
  Config config = test::small_config();
  config.context_tokens = kContext;
  config.page_tokens = kPage;
  config.sessions_max = 3;
  config.batch_rows_max = 64;
  config.kv_type = kv_type;
  config.n_threads = 2;
  config.select.method = method;
  config.select.code_bits = 2;
  config.select.n_subspaces = kv_type == KvTypeChoice::f16 ? 2 : 1;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.k = 48;
  config.select.iterations = 3;
  config.select.swap_tokens = 16;
  if (memory == Memory::whole) return config;
  config.kv_memory_bytes = (memory == Memory::little ? 42 : 150) * kGroupBytes;  // of 262 groups
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  return config;
}

struct Answer {
  std::vector<std::vector<u32>> tokens;
  std::vector<LogitsRecord> logits = std::vector<LogitsRecord>(3);
};

std::vector<u32> say(Engine& engine, SessionIdx session, u32 n) {
  REQUIRE(engine.generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
  return test::read_all(engine, session).tokens;
}

// A prompt and its answer beside another's, a second turn that makes the index anew, a cut back
// behind the swap, and a fork.
Answer answer_of(OpenEngine& open) {
  Engine& engine = open.engine;
  Answer answer;
  const SessionIdx a = open.session_with(test::random_ids(1, kPrompt));
  const SessionIdx b = open.session_with(test::random_ids(2, 300));
  open.run();
  engine.watch_logits(a, &LogitsRecord::on_logits, &answer.logits[0]);
  engine.watch_logits(b, &LogitsRecord::on_logits, &answer.logits[1]);
  for (const SessionIdx session : {a, b}) {
    REQUIRE(engine.generate(session, {.max_tokens = 50, .ignore_end = true}).has_value());
  }
  for (const SessionIdx session : {a, b}) {
    answer.tokens.push_back(test::read_all(engine, session).tokens);
  }
  engine.watch_logits(b, nullptr, nullptr);
  REQUIRE(engine.feed(b, test::random_ids(3, 400)).has_value());
  answer.tokens.push_back(say(engine, b, 40));
  REQUIRE(engine.truncate(a, kPrompt + 25).has_value());
  answer.tokens.push_back(say(engine, a, 20));
  const Result<SessionIdx> c = engine.fork(a);
  REQUIRE(c.has_value());
  engine.watch_logits(*c, &LogitsRecord::on_logits, &answer.logits[2]);
  answer.tokens.push_back(say(engine, *c, 30));
  answer.tokens.push_back(say(engine, a, 30));
  return answer;
}

void require_same(const Answer& want, const Answer& got) {
  CHECK(want.tokens == got.tokens);
  for (u32 i = 0; i < 3; ++i) {
    CAPTURE(i);
    test::require_same_bits(want.logits[i], got.logits[i]);
  }
}

void check_counters(const Engine& engine, SelectMethod method) {
  const DiskTrace& disk = engine.counters().disk;
  CHECK(engine.kv_stream().stats().n_lost == 0);
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
    for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0}) {
      CAPTURE(kSelectMethodNames[static_cast<u64>(method)]);
      CAPTURE(type);
      OpenEngine resident(model.path(), config_of(method, Memory::whole, type));
      const Answer want = answer_of(resident);
      for (const Memory memory : {Memory::little, Memory::some}) {
        if (memory == Memory::some && method == SelectMethod::window) continue;
        test::SimDisk disk(1);
        VirtualClock clock;
        test::SimIo io(disk, clock, 64);
        OpenEngine streamed(model.path(), config_of(method, memory, type), &clock, &io);
        REQUIRE(streamed.engine.kv_stream().is_on());
        CHECK((streamed.engine.plan().tiers.cache_slots > 0) == (memory == Memory::some));
        require_same(want, answer_of(streamed));
        check_counters(streamed.engine, method);
      }
    }
  }
}

TEST_CASE("blocks of tokens over memory and disk give the bits of KV in memory") {
  const SmallModel model("llama", "q8_0");
  const auto in_blocks = [](Memory memory) {
    Config config = config_of(SelectMethod::pq, memory);
    config.select.block_tokens = 8;
    return config;
  };
  OpenEngine resident(model.path(), in_blocks(Memory::whole));
  const Answer want = answer_of(resident);
  OpenEngine single(model.path(), config_of(SelectMethod::pq, Memory::whole));
  CHECK_FALSE(want.tokens == answer_of(single).tokens);  // it is another choice
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  OpenEngine streamed(model.path(), in_blocks(Memory::little), &clock, &io);
  require_same(want, answer_of(streamed));
  check_counters(streamed.engine, SelectMethod::pq);
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
  while (engine.kv_stream().stats().n_gather_reads == 0) engine.step();
  const SessionIdx other = open.session_with(others);
  REQUIRE(engine.generate(other, {.max_tokens = 60, .ignore_end = true}).has_value());
  // Every read comes back with a wrong bit, until one was seen.
  disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  while (engine.kv_stream().stats().n_lost == 0) engine.step();
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
  CHECK(engine.kv_stream().stats().n_lost > 0);
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
}  // namespace tarn::engine
