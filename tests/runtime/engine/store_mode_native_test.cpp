// Goal    a store whose disk fails in the middle is told once, with the reason, and shown from then
//         on; what is in memory goes on with the same tokens.
// Method  an engine with memory for an eighth of its context over a simulated disk that refuses
//         every call from some point on; its log's lines counted.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine {
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
      : open(model, config_of(true), &clock, &io, Log(&Lines::keep, &lines, LogLevel::info)) {}
  std::string store() const { return open.engine.kv_stream().store_name(); }
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
  REQUIRE(engine.generate(session, {.max_tokens = 40, .ignore_end = true}).has_value());
  return test::read_all(engine, session).tokens;
}

TEST_CASE("a disk without room: read-only, told once, and who is in memory goes on") {
  const test::SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(9, 60);
  test::OpenEngine resident(model.path(), config_of(false));
  CHECK(std::string(resident.engine.kv_stream().store_name()) == "none");
  const std::vector<u32> want = answer(resident.engine, resident.session_with(ids));

  Life life(model.path());
  CHECK(life.store() == "on");
  life.fail_all(28);  // ENOSPC
  const SessionIdx large = life.open.session_with(test::random_ids(10, 900));
  REQUIRE(life.open.engine.generate(large, {.max_tokens = 4}).has_value());
  CHECK(test::read_all(life.open.engine, large).done.status == Status::io_failed);
  life.open.engine.destroy_session(large);
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
  while (life.open.engine.kv_stream().is_moving()) life.open.engine.step();
  REQUIRE(life.open.engine.kv_stream().stats().bytes_spilled > 0);
  CHECK(life.lines.of_store.empty());
  life.fail_all(5);  // EIO
  REQUIRE(life.open.engine.feed(session, test::random_ids(8, 8)).has_value());
  life.open.run();
  CHECK(life.store() == "off");
  REQUIRE_FALSE(life.lines.of_store.empty());
  CHECK(life.lines.of_store.back().find("the store is off") != std::string::npos);
  const size_t n_lines = life.lines.of_store.size();
  CHECK(n_lines <= 2);  // read-only may come before
  life.open.engine.destroy_session(session);
  (void)answer(life.open.engine, life.open.session_with(test::random_ids(9, 60)));
  CHECK(life.lines.of_store.size() == n_lines);
}

}  // namespace
}  // namespace tarn::engine
