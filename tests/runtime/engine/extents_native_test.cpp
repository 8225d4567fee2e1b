// Goal    extents change what is read, and no bit of what is said: while an index is built, used,
//         rebuilt, cut and forked; a flipped, failed or lost part of one is had from its groups, or
//         the generation says that it cannot; without room, budget or wish there are none, and
//         with little of them one order.
// Method  the conversation of selected_answers.h over a simulated disk against KV in memory; faults
//         by the disk's script; the reads that were made are counted.
#include <doctest/doctest.h>

#include <array>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/selected_answers.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine::extents_native_test {
namespace {

using namespace test_selected;

struct Streamed {
  explicit Streamed(const SmallModel& model, const Config& config, u64 seed = 1)
      : disk(seed), io(disk, clock, 64), open(model.path(), config, &clock, &io) {}
  const kv::ExtentStats& extents() const { return lab::Probe::tiers(open.engine).extents.stats(); }
  test::SimDisk disk;
  VirtualClock clock;
  test::SimIo io;
  OpenEngine open;
};

TEST_CASE("selection over extents gives the bits of KV in memory") {
  const SmallModel model("llama", "q8_0");
  for (const CodeFormat format : {CodeFormat::bytes, CodeFormat::packed}) {
    const auto with = [&](Memory memory) {
      Config config = config_of(SelectMethod::pq, memory);
      config.select.code_format = format;
      return config;
    };
    OpenEngine resident(model.path(), with(Memory::whole));
    const Answer want = answer_of(resident);
    for (const u32 n_orders : {1u, 2u}) {
      CAPTURE(n_orders);
      Streamed streamed(model, with(n_orders == 1 ? Memory::ample : Memory::roomy));
      REQUIRE(streamed.open.engine.plan().tiers.extents.is_on());
      REQUIRE(streamed.open.engine.plan().tiers.extents.n_orders == n_orders);
      require_same(want, answer_of(streamed.open));
      CHECK(streamed.extents().n_reads > 0);
      CHECK(streamed.extents().bytes_used > 0);
      CHECK(streamed.extents().bytes_used <= streamed.extents().bytes_read);
      CHECK(streamed.extents().n_lost == 0);
      CHECK(lab::Probe::tiers(streamed.open.engine).mover.stats().n_lost == 0);
    }
  }
}

TEST_CASE("all of the middle out of extents, in their order, is full attention") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, kPrompt);
  std::vector<u32> want;
  {
    OpenEngine resident(model.path(), config_of(SelectMethod::full, Memory::whole));
    want = say(resident.engine, resident.session_with(ids), 60);
  }
  Config config = config_of(SelectMethod::pq, Memory::roomy);
  config.select.k = kContext;
  config.select.context_min = 1;
  Streamed streamed(model, config);
  REQUIRE(streamed.open.engine.plan().tiers.extents.is_on());
  CHECK(say(streamed.open.engine, streamed.open.session_with(ids), 60) == want);
  CHECK(streamed.extents().n_reads > 0);
  CHECK(streamed.extents().bytes_used > 0);
}

// What the extents gave in steps of one session's rows.
struct FromExtents {
  u64 n_reads = 0, bytes_used = 0;
  bool operator==(const FromExtents&) const = default;
};

struct Turn {
  std::vector<u32> tokens;
  FromExtents read;
  bool operator==(const Turn&) const = default;
};

Turn turn_of(Streamed& streamed, SessionIdx session, u32 n) {
  const kv::ExtentStats before = streamed.extents();
  Turn turn{.tokens = say(streamed.open.engine, session, n), .read = {}};
  turn.read = {streamed.extents().n_reads - before.n_reads,
               streamed.extents().bytes_used - before.bytes_used};
  return turn;
}

// In turns: each session's index and extents are made while the others have theirs.
TEST_CASE("sessions have each its own extents at the same time, and read what they read alone") {
  const SmallModel model("llama", "q8_0");
  const auto config = [] {
    Config out = config_of(SelectMethod::pq, Memory::roomy);
    out.select.index_delay_tokens = 2;  // what a generation begins is done when it ends
    return out;
  };
  constexpr u32 kSessions = 3, kTurns = 3, kTokens = 12;
  const auto prompt = [](u32 i) { return test::random_ids(40 + i, kPrompt + 50 * i); };
  std::vector<std::vector<Turn>> alone(kSessions);
  for (u32 i = 0; i < kSessions; ++i) {
    Streamed streamed(model, config());
    const SessionIdx session = streamed.open.session_with(prompt(i));
    for (u32 turn = 0; turn < kTurns; ++turn) {
      alone[i].push_back(turn_of(streamed, session, kTokens));
    }
    REQUIRE(alone[i].back().read.bytes_used > 0);
  }
  Streamed streamed(model, config());
  const Engine& engine = streamed.open.engine;
  std::vector<SessionIdx> sessions;
  for (u32 turn = 0; turn < kTurns; ++turn) {
    for (u32 i = 0; i < kSessions; ++i) {
      CAPTURE(turn);
      CAPTURE(i);
      if (turn == 0) sessions.push_back(streamed.open.session_with(prompt(i)));
      const Turn got = turn_of(streamed, sessions[i], kTokens);
      CHECK(got.tokens == alone[i][turn].tokens);
      CHECK(got.read.n_reads == alone[i][turn].read.n_reads);
      CHECK(got.read.bytes_used == alone[i][turn].read.bytes_used);
    }
  }
  CHECK(streamed.extents().n_lost == 0);
  // All of them at the end, and of one that is forgotten, its own alone.
  const u32 n_heads = engine.plan().select.n_heads;
  const auto n_with_extents = [&] {
    u32 n = 0;
    for (u32 head = 0; head < engine.plan().sessions_max * n_heads; ++head) {
      n += lab::Probe::tiers(engine).extents.head(head).n_orders > 0;
    }
    return n;
  };
  CHECK(n_with_extents() == kSessions * n_heads);
  streamed.open.engine.destroy_session(sessions[1]);
  CHECK(n_with_extents() == (kSessions - 1) * n_heads);
  CHECK(turn_of(streamed, sessions[0], kTokens).read.bytes_used > 0);
}

// Then what has landed is put into its place before the rest is asked for.
TEST_CASE("a head may want more of an extent than the ring of landings holds") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, 1900);
  const auto with = [](Memory memory) {
    Config config = config_of(SelectMethod::pq, memory);
    config.select.k = 700;
    return config;
  };
  std::vector<u32> want;
  {
    OpenEngine resident(model.path(), with(Memory::whole));
    want = say(resident.engine, resident.session_with(ids), 40);
  }
  for (u64 seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    Streamed streamed(model, with(Memory::ample), seed);
    Engine& engine = streamed.open.engine;
    const SessionIdx session = streamed.open.session_with(ids);
    REQUIRE(engine.generate(session, {.max_tokens = 40, .ignore_end = true}).has_value());
    const u64 ring_bytes = lab::Probe::tiers(engine).extents.landing().size();
    const u32 n_heads = engine.plan().select.n_heads;
    u64 most_bytes = 0;
    while (engine.has_work()) {
      const u64 before = streamed.extents().bytes_read;
      engine.step();
      // The step that writes extents also reads their heads, a sector each.
      most_bytes = std::max(most_bytes, (streamed.extents().bytes_read - before) / n_heads);
    }
    CHECK(most_bytes > ring_bytes);
    CHECK(test::read_all(engine, session).tokens == want);
    CHECK(streamed.extents().n_lost == 0);
  }
}

// Reads of everything come back with a wrong bit now and then, or with an error. An answer that
// ends well is the right one, and what was lost was noticed: a bit seldom changes an answer.
TEST_CASE("a damaged extent is never believed, and its tokens come from their groups") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, kPrompt);
  std::vector<u32> want;
  {
    OpenEngine resident(model.path(), config_of(SelectMethod::pq, Memory::whole));
    want = say(resident.engine, resident.session_with(ids), 80);
  }
  constexpr test::SimFault kFaults[] = {test::SimFault::flipped_read, test::SimFault::error};
  std::array<u64, 2> n_lost{};
  u64 n_right = 0;
  for (u64 seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    Streamed streamed(model, config_of(SelectMethod::pq, Memory::roomy), seed);
    Engine& engine = streamed.open.engine;
    const SessionIdx session = streamed.open.session_with(ids);
    REQUIRE(engine.generate(session, {.max_tokens = 80, .ignore_end = true}).has_value());
    while (streamed.extents().bytes_used == 0 && engine.has_work()) engine.step();
    streamed.disk.script.ppm[static_cast<u32>(kFaults[seed % 2])] = 20'000;
    const test::Said said = test::read_all(engine, session);
    n_lost[seed % 2] += streamed.extents().n_lost;
    if (said.done.status == Status::ok) {
      ++n_right;
      CHECK(said.tokens == want);
    } else {
      CHECK(said.done.status == Status::io_failed);
    }
  }
  CHECK(n_lost[0] > 0);
  CHECK(n_lost[1] > 0);
  CHECK(n_right > 0);
}

TEST_CASE("an extent that was written wrongly or not at all is none") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, kPrompt);
  std::vector<u32> want;
  {
    OpenEngine resident(model.path(), config_of(SelectMethod::pq, Memory::whole));
    want = say(resident.engine, resident.session_with(ids), 60);
  }
  for (const auto fault : {test::SimFault::lost_write, test::SimFault::flipped_write,
                           test::SimFault::zeroed_write, test::SimFault::error}) {
    CAPTURE(test::sim_fault_name(fault));
    Streamed streamed(model, config_of(SelectMethod::pq, Memory::ample));
    Engine& engine = streamed.open.engine;
    const SessionIdx session = streamed.open.session_with(ids);
    REQUIRE(engine.generate(session, {.max_tokens = 60, .ignore_end = true}).has_value());
    while (streamed.extents().bytes_written == 0 && engine.has_work()) engine.step();
    const test::Said said = test::read_all(engine, session);
    CHECK(said.done.status == Status::ok);
    CHECK(said.tokens == want);
  }
}

TEST_CASE("without a wish, room on the disk or write budget there are no extents") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, kPrompt);
  OpenEngine resident(model.path(), config_of(SelectMethod::pq, Memory::whole));
  const std::vector<u32> want = say(resident.engine, resident.session_with(ids), 60);
  const auto check = [&](const char* name, const Config& config, bool is_planned) {
    CAPTURE(name);
    Streamed streamed(model, config);
    CHECK(streamed.open.engine.plan().tiers.extents.is_on() == is_planned);
    CHECK(say(streamed.open.engine, streamed.open.session_with(ids), 60) == want);
    CHECK(streamed.extents().n_reads == 0);
    const u64 left_bytes =
        lab::Probe::tiers(streamed.open.engine).store.store().stats().budget_left_bytes;
    CHECK(left_bytes >= config.store.daily_write_bytes / 4);  // some groups were spilled
  };
  Config config = config_of(SelectMethod::pq, Memory::ample);
  config.select.disk_reorder = false;
  check("no wish", config, false);
  config = config_of(SelectMethod::pq, Memory::ample);
  config.store.quota_bytes = 262 * (kGroupBytes + 4096) + 2 * kMiB;
  check("no room", config, false);
  config = config_of(SelectMethod::pq, Memory::ample);
  config.store.daily_write_bytes = kMiB;
  check("no budget", config, true);
}

TEST_CASE("where there is no room or write budget for two orders of extents, one does") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(7, kPrompt);
  std::vector<u32> want;
  u64 disk_bytes = 0, written_bytes = 0;
  {
    Streamed both(model, config_of(SelectMethod::pq, Memory::roomy));
    want = say(both.open.engine, both.open.session_with(ids), 60);
    disk_bytes = both.open.engine.plan().tiers.disk_bytes;
    written_bytes = both.extents().bytes_written;
    REQUIRE(both.open.engine.plan().tiers.extents.n_orders == 2);
  }
  const auto check = [&](const char* name, const Config& config, u32 n_orders) {
    CAPTURE(name);
    Streamed streamed(model, config);
    CHECK(streamed.open.engine.plan().tiers.extents.n_orders == n_orders);
    CHECK(say(streamed.open.engine, streamed.open.session_with(ids), 60) == want);
    CHECK(streamed.extents().n_reads > 0);
    CHECK(streamed.extents().bytes_written == written_bytes / 2);
    for (u32 head = 0; head < streamed.open.engine.plan().select.n_heads; ++head) {
      CHECK(lab::Probe::tiers(streamed.open.engine).extents.head(head).n_orders == 1);
    }
  };
  Config config = config_of(SelectMethod::pq, Memory::roomy);
  config.store.quota_bytes = disk_bytes - 1;
  check("no room", config, 1);
  config = config_of(SelectMethod::pq, Memory::roomy);
  config.store.daily_write_bytes = written_bytes + written_bytes / 4;  // half of it for extents
  check("no budget", config, 2);
}

}  // namespace
}  // namespace tarn::engine::extents_native_test
