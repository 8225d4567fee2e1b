// Goal    a store whose disk fails, in the middle or before the start, is told once, with the
//         reason, and shown from then on; what is in memory goes on with the same tokens.
// Method  an engine with memory for an eighth of its context over a simulated disk that refuses
//         every call from some point on; its log's lines counted.
#include <doctest/doctest.h>

#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"
#include "tests/support/temp_dir.h"

namespace tarn::engine::store_mode_native_test {
namespace {

constexpr u32 kContext = 2048;

struct Lines {
  std::vector<std::string> of_store;
  static void keep(void* context, LogLevel level, const char* text) {
    const std::string line = text;
    if (line.find("the store is") == std::string::npos) return;
    CHECK(level == LogLevel::warning);
    static_cast<Lines*>(context)->of_store.push_back(line);
  }
  Log log() { return Log(&Lines::keep, this, LogLevel::info); }
};

Config config_of(bool streamed) {
  Config config = test::small_config();
  config.context_tokens = kContext;
  config.page_tokens = 16;
  config.sessions_max = 2;
  config.batch_rows_max = 64;
  if (!streamed) return config;
  config.kv_memory_bytes = 2 * kContext / 16 / 8 * u64{8192};
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  return config;
}

struct Life {
  explicit Life(const std::string& model)
      : open(model, config_of(true), &clock, &io, lines.log()) {}
  std::string store() const { return lab::Probe::tiers(open.engine).store.state_name(); }
  void fail_all(int error) {
    disk.script.errors = {error};
    disk.script.ppm[static_cast<u32>(test::SimFault::error)] = 1'000'000;
  }

  Lines lines;
  test::SimDisk disk{1};
  VirtualClock clock;
  test::SimIo io{disk, clock, 64};
  test::OpenEngine open;
};

std::vector<u32> answer(Engine& engine, SessionIdx session) {
  REQUIRE(engine.sessions().generate(session, {.max_tokens = 40, .ignore_end = true}).has_value());
  return test::read_all(engine, session).tokens;
}

TEST_CASE("a disk without room: read-only, told once, and who is in memory goes on") {
  const test::SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(9, 60);
  test::OpenEngine resident(model.path(), config_of(false));
  CHECK(std::string(lab::Probe::tiers(resident.engine).store.state_name()) == "none");
  const std::vector<u32> want = answer(resident.engine, resident.session_with(ids));

  Life life(model.path());
  CHECK(life.store() == "on");
  life.fail_all(28);  // ENOSPC
  const SessionIdx large = life.open.session_with(test::random_ids(10, 900));
  REQUIRE(life.open.engine.sessions().generate(large, {.max_tokens = 4}).has_value());
  CHECK(test::read_all(life.open.engine, large).done.status == Status::io_failed);
  life.open.engine.sessions().destroy(large);
  CHECK(answer(life.open.engine, life.open.session_with(ids)) == want);
  CHECK(life.store() == "read-only");
  REQUIRE(life.lines.of_store.size() == 1);
  CHECK(life.lines.of_store[0].find("read-only") != std::string::npos);
  CHECK(life.lines.of_store[0].find("errno 28") != std::string::npos);
}

TEST_CASE("a disk that cannot be read: off, told once") {
  const test::SmallModel model("llama", "q8_0");
  Life life(model.path());
  const SessionIdx session = life.open.session_with(test::random_ids(7, 900));
  life.open.run();
  while (lab::Probe::kv(life.open.engine).is_moving()) life.open.engine.step();
  REQUIRE(lab::Probe::tiers(life.open.engine).mover.stats().bytes_spilled > 0);
  CHECK(life.lines.of_store.empty());
  life.fail_all(5);  // EIO
  REQUIRE(life.open.engine.sessions().feed(session, test::random_ids(8, 8)).has_value());
  life.open.run();
  CHECK(life.store() == "off");
  REQUIRE_FALSE(life.lines.of_store.empty());
  CHECK(life.lines.of_store.back().find("the store is off") != std::string::npos);
  const size_t n_lines = life.lines.of_store.size();
  CHECK(n_lines <= 2);  // read-only may come before
  life.open.engine.sessions().destroy(session);
  (void)answer(life.open.engine, life.open.session_with(test::random_ids(9, 60)));
  CHECK(life.lines.of_store.size() == n_lines);
}

// ---- At the start ---------------------------------------------------------------------------

using test::SimFault;

struct Broken {
  const char* name;
  const char* in_line;  // of what is logged
  std::function<void(test::SimDisk&)> breaks;
};

// Every call from now on, whatever the disk did before.
std::function<void(test::SimDisk&)> all_calls(SimFault fault) {
  return [fault](test::SimDisk& disk) { disk.script.ppm[static_cast<u32>(fault)] = 1'000'000; };
}

const std::vector<Broken>& broken_disks() {
  static const std::vector<Broken> all = {
      {"EIO", "errno 5", all_calls(SimFault::error)},
      {"full", "errno 28", [](test::SimDisk& disk) { disk.script.capacity_bytes = 1 * kMiB; }},
      {"read-only", "errno 30", [](test::SimDisk& disk) { disk.script.read_only = true; }},
      {"silent", "did not answer", all_calls(SimFault::never)},
  };
  return all;
}

TEST_CASE("a disk that fails before the start: off, told once, and all answers are there") {
  const test::SmallModel model("llama", "q8_0");
  test::SavedLife resident(model, {});
  const std::vector<u32> want = test::first_part(resident, test::create(resident), 300);
  for (const Broken& broken : broken_disks()) {
    CAPTURE(std::string(broken.name));
    test::SimDisk disk{1};
    broken.breaks(disk);
    Lines lines;
    {
      test::SavedLife life(model, {}, disk, lines.log());
      CHECK(std::string(lab::Probe::tiers(life.engine()).store.state_name()) == "off");
      REQUIRE(lines.of_store.size() == 1);
      CHECK(lines.of_store[0].find("the store is off") != std::string::npos);
      CHECK(lines.of_store[0].find(broken.in_line) != std::string::npos);
      const SessionIdx session = test::create(life);
      CHECK(test::first_part(life, session, 300) == want);
      CHECK(life.engine().sessions().autosave(session, "talk").error().status == Status::io_failed);
      CHECK(life.engine().sessions().restore("talk").error().status == Status::io_failed);
      CHECK(life.engine().archive().erase({}, "talk").error().status == Status::io_failed);
      CHECK(test::export_session(life, "talk", "/nowhere").error().status == Status::io_failed);
      CHECK(life.engine().archive().import_from("/nowhere", {}, "talk").error().status ==
            Status::io_failed);
    }
    CHECK(lines.of_store.size() == 1);
  }
}

TEST_CASE("sessions that the disk could not show are there once it can again") {
  const test::SmallModel model("llama", "q8_0");
  test::SimDisk disk{1};
  {
    test::SavedLife life(model, {}, disk);
    const SessionIdx session = test::create(life);
    REQUIRE(life.engine().sessions().autosave(session, "talk").has_value());
    (void)test::first_part(life, session, 300);
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
  }
  const test::SimScript well = disk.script;
  for (const Broken& broken : broken_disks()) {
    if (std::string(broken.name) != "EIO" && std::string(broken.name) != "read-only") continue;
    CAPTURE(std::string(broken.name));
    broken.breaks(disk);
    Lines lines;
    test::SavedLife life(model, {}, disk, lines.log());
    CHECK(lines.of_store.size() == 1);
    (void)test::first_part(life, test::create(life), 100);
    disk.script = well;
  }
  test::SavedLife life(model, {}, disk);
  CHECK(std::string(lab::Probe::tiers(life.engine()).store.state_name()) == "on");
  CHECK(life.engine().sessions().state(life.restore("talk")).tokens.n_ids == 320);
}

// Every look at it takes a millisecond: who waits for a lock does nothing else.
class TickingClock final : public Clock {
 public:
  u64 now_ns() override { return now_ns_ += 1'000'000; }

 private:
  u64 now_ns_ = 0;
};

Status status_of_open(const std::string& model, const Config& config, IoBackend* io, Clock& clock) {
  SystemReserve reserve;
  Engine engine;
  const Result<void> opened = engine.open({.model_path = model.c_str(),
                                           .config = config,
                                           .reserve = &reserve,
                                           .clock = &clock,
                                           .store_io = io});
  engine.close();
  return opened ? Status::ok : opened.error().status;
}

TEST_CASE("where memory does not hold all KV, such a disk is refused, and so is one of others") {
  const test::SmallModel model("llama", "q8_0");
  for (const Broken& broken : broken_disks()) {
    CAPTURE(std::string(broken.name));
    for (const Config& config : {config_of(true), test::saved_config({.few_frames = true}, true)}) {
      test::SimDisk disk{1};
      VirtualClock clock;
      test::SimIo io{disk, clock, 64};
      broken.breaks(disk);
      CHECK(status_of_open(model.path(), config, &io, clock) == Status::io_failed);
    }
  }
  test::SimDisk disk{1};
  test::SavedLife first(model, {}, disk);
  test::SimIo io{disk, first.clock, 64};
  TickingClock clock;
  CHECK(status_of_open(model.path(), test::saved_config({}, true), &io, clock) ==
        Status::io_failed);
}

TEST_CASE("a folder: one that is gone does not stop the engine, one that is open to all does") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempDir dir("store_mode");
  REQUIRE(mkdir(dir.path().c_str(), 0700) == 0);
  SystemClock clock;
  Config config = test::saved_config({}, true);
  test::set_text(config.store.path, dir.path() + "/gone/store");
  Lines lines;
  {
    test::OpenEngine open(model.path(), config, &clock, nullptr, lines.log());
    CHECK(std::string(lab::Probe::tiers(open.engine).store.state_name()) == "off");
    REQUIRE(lines.of_store.size() == 1);
    CHECK(lines.of_store[0].find("make it, or name another folder") != std::string::npos);
    CHECK(answer(open.engine, open.session_with(test::random_ids(9, 60))).size() == 40);
  }
  const std::string of_all = dir.path() + "/of_all";
  REQUIRE(mkdir(of_all.c_str(), 0700) == 0);
  REQUIRE(chmod(of_all.c_str(), 0755) == 0);
  test::set_text(config.store.path, of_all);
  CHECK(status_of_open(model.path(), config, nullptr, clock) == Status::io_failed);
}

}  // namespace
}  // namespace tarn::engine::store_mode_native_test
