// Goal    a context larger than the memory for its KV gives the bits of one that is in memory
//         whole; an engine closes over a disk that does not answer. (Faults of the disk:
//         sim/reuse_random.)
// Method  the same calls (batch of two, truncate inside a page, fork) on an engine with all KV in
//         memory and on one with frames for an eighth of the context, over a simulated disk and
//         over a real file; every position's logits compared as bytes.
#include <doctest/doctest.h>

#include <cstring>

#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::kv_stream_native_test {
namespace {

using test::LogitsRecord;
using test::SmallModel;

constexpr u32 kContext = 2048;
constexpr u32 kPage = 16;
constexpr u32 kLayers = 2;
constexpr u32 kFrames = kLayers * kContext / kPage / 8;

struct How {
  bool streamed = false;
  const char* folder = "store";
  IoBackend* io = nullptr;
  Clock* clock = nullptr;
  KvTypeChoice kv_type = KvTypeChoice::f16;
  const char* io_name = "auto";
  u32 n_threads = 1;
  u64 group_bytes = 8192;  // of the model's KV
};

Config config_of(const How& how) {
  Config config = test::small_config();
  config.context_tokens = kContext;
  config.page_tokens = kPage;
  config.sessions_max = 3;
  config.batch_rows_max = 64;
  config.kv_type = how.kv_type;
  config.n_threads = how.n_threads;
  test::set_text(config.io, how.io_name);
  if (!how.streamed) return config;
  config.kv_memory_bytes = kFrames * how.group_bytes;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, how.folder);
  return config;
}

struct Opened : test::OpenEngine {
  Opened(const std::string& path, const How& how)
      : OpenEngine(path, config_of(how), how.clock, how.io) {
    REQUIRE(lab::Probe::kv(engine).has_tiers() == how.streamed);
  }
  SessionIdx create() {
    const Result<SessionIdx> session = engine.sessions().create();
    REQUIRE(session.has_value());
    return *session;
  }
  void feed(SessionIdx session, const std::vector<u32>& ids) {
    REQUIRE(engine.sessions().feed(session, ids).has_value());
  }
};

// Every position's logits of three sessions, and what two generations said.
struct Answers {
  std::vector<LogitsRecord> logits = std::vector<LogitsRecord>(3);
  std::vector<std::vector<u32>> tokens;
};

Answers answers_of(Opened& open) {
  Answers answers;
  Engine& engine = open.engine;
  const SessionIdx a = open.create(), b = open.create();
  lab::Probe(engine).watch_logits(a, &LogitsRecord::on_logits, &answers.logits[0]);
  lab::Probe(engine).watch_logits(b, &LogitsRecord::on_logits, &answers.logits[1]);
  open.feed(a, test::random_ids(1, 400));
  open.feed(b, test::random_ids(2, 700));
  open.run();
  for (const SessionIdx session : {a, b}) {
    REQUIRE(
        engine.sessions().generate(session, {.max_tokens = 40, .ignore_end = true}).has_value());
  }
  for (const SessionIdx session : {a, b}) {
    answers.tokens.push_back(test::read_all(engine, session).tokens);
  }
  open.run();
  REQUIRE(engine.sessions().truncate(a, 203).has_value());
  open.feed(a, test::random_ids(3, 60));
  open.run();
  lab::Probe(engine).watch_logits(b, nullptr, nullptr);
  const Result<SessionIdx> c = engine.sessions().fork(b);
  REQUIRE(c.has_value());
  lab::Probe(engine).watch_logits(*c, &LogitsRecord::on_logits, &answers.logits[2]);
  lab::Probe(engine).watch_logits(b, &LogitsRecord::on_logits, &answers.logits[1]);
  open.feed(*c, test::random_ids(4, 30));
  open.feed(b, test::random_ids(5, 50));
  open.run();
  REQUIRE(engine.sessions().truncate(*c, 521).has_value());  // inside a group that b shares
  open.feed(*c, test::random_ids(6, 20));
  open.run();
  return answers;
}

void require_same(const Answers& want, const Answers& got) {
  CHECK(want.tokens == got.tokens);
  for (u32 i = 0; i < 3; ++i) {
    CAPTURE(i);
    test::require_same_bits(want.logits[i], got.logits[i]);
  }
}

void check_streamed(const Engine& engine) {
  const u64 group_bytes = engine.plan().group_shape.group_bytes();
  const kv::MoverStats& stats = lab::Probe::tiers(engine).mover.stats();
  CHECK(stats.bytes_loaded > 20 * kFrames * group_bytes);
  CHECK(stats.bytes_spilled > kFrames * group_bytes);
  CHECK(stats.n_lost == 0);
  CHECK(engine.status().counters.disk.bytes_read > stats.bytes_loaded * 9 / 10);  // cuts read, too
  CHECK(engine.status().counters.disk.n_hits + engine.status().counters.disk.n_waited ==
        stats.n_hits + stats.n_waited);
  CHECK(lab::Probe::tiers(engine).residency.n_frames() == kFrames);
  CHECK(engine.plan().of(plan::RegionId::kv_groups).bytes == kFrames * group_bytes);
}

TEST_CASE("KV over memory and a disk gives the bits of KV in memory, on a simulated disk") {
  const SmallModel model("llama", "q8_0");
  for (const KvTypeChoice type : {KvTypeChoice::f16, KvTypeChoice::q8_0, KvTypeChoice::q4_0}) {
    CAPTURE(type);
    Opened resident(model.path(), {.kv_type = type});
    const Answers want = answers_of(resident);
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    Opened streamed(model.path(), {.streamed = true,
                                   .io = &io,
                                   .clock = &clock,
                                   .kv_type = type,
                                   .group_bytes = type == KvTypeChoice::q4_0 ? 4096u : 8192u});
    require_same(want, answers_of(streamed));
    check_streamed(streamed.engine);
    CHECK(streamed.engine.plan().disk_bytes == disk.file_bytes("store/kv.tarn").size());
  }
}

TEST_CASE("the same over a real file, by ring and by threads, with two workers") {
  const SmallModel model("qwen3", "q4_k");
  Opened resident(model.path(), {});
  const Answers want = answers_of(resident);
  for (const char* io_name : {"auto", "threads"}) {
    CAPTURE(std::string(io_name));
    const test::TempDir dir("kv_stream_test");
    Opened streamed(model.path(), {.streamed = true,
                                   .folder = dir.path().c_str(),
                                   .io_name = io_name,
                                   .n_threads = 2,
                                   .group_bytes = 16384});
    require_same(want, answers_of(streamed));
    check_streamed(streamed.engine);
  }
}

void keep_requests(test::SimDisk& disk) {
  disk.script.faults = {
      {.fault = test::SimFault::never, .first_call = disk.n_calls(), .n_calls = ~u64{0}}};
}

// What the disk does, late, with the memory that it was lent.
void answer_late(test::SimIo& io) {
  io.let_stuck_go();
  std::array<IoCompletion, 64> completions;
  while (io.n_in_flight() > 0) io.reap(completions, 1, 1'000'000'000);
}

TEST_CASE("an engine closes over a disk that does not answer, and leaves it what it still has") {
  constexpr u64 kDeadlineNs = store::StoreLimits{}.io_deadline_ns;
  const SmallModel model("llama", "q8_0");
  for (const bool reads : {false, true}) {
    CAPTURE(reads);
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    Opened open(model.path(), {.streamed = true, .io = &io, .clock = &clock});
    const SessionIdx session = open.create();
    if (reads) {  // a step waits for them, and has turned the store off; else it spills
      open.feed(session, test::random_ids(15, 1500));
      open.run();
      while (lab::Probe::kv(open.engine).is_moving()) open.engine.step();
      keep_requests(disk);
    }
    open.feed(session, test::random_ids(16, 400));
    while (io.n_in_flight() == 0) {
      REQUIRE(open.engine.has_work());
      open.engine.step();
    }
    io.get_stuck();
    CHECK((lab::Probe::tiers(open.engine).store.store().mode() == store::Mode::off) == reads);
    const u64 begin_ns = clock.now_ns();
    open.engine.close();
    CHECK(clock.now_ns() - begin_ns < 3 * kDeadlineNs);
    CHECK(io.n_in_flight() > 0);
    disk.script.faults.clear();
    answer_late(io);
  }
}

TEST_CASE("an engine whose store does not come up leaves the disk what it still has") {
  const SmallModel model("llama", "q8_0");
  const Config config = config_of({.streamed = true});
  for (const u64 first_call : {u64{0}, u64{3}}) {
    CAPTURE(first_call);
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    disk.script.faults = {
        {.fault = test::SimFault::never, .first_call = first_call, .n_calls = ~u64{0}}};
    SystemReserve reserve;
    Engine engine;
    const Result<void> opened = engine.open({.model_path = model.path().c_str(),
                                             .config = config,
                                             .reserve = &reserve,
                                             .clock = &clock,
                                             .store_io = &io});
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().status == Status::io_failed);
    CHECK(io.n_in_flight() > 0);
    disk.script.faults.clear();
    answer_late(io);
  }
}

}  // namespace
}  // namespace tarn::engine::kv_stream_native_test
