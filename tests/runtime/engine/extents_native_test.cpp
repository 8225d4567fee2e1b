// Goal    extents change what is read, and no bit of what is said; without room, budget or wish
//         there are none, and with little of them one order. (Cuts, forks, neighbours and damaged
//         parts: sim/select_random.)
// Method  the conversation of selected_answers.h over a simulated disk against KV in memory; the
//         reads that were made are counted.
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
