// Goal    no call of a host, however wrong or late, ends its process or hangs. (No answer changes
//         by a late or repeated cancel: many_callers.)
// Method  a model's file and a disk that fail, destroyed handles, NULL buffers, calls from the
//         engine's own callbacks, and tarn_close and tarn_session_destroy under another thread's
//         poll.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/instance.h"
#include "runtime/api/tarn.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"

namespace tarn::guest_test {
namespace {

using test::Host;
using test::run;
using test::SmallModel;

void feed(tarn_session* session, u32 n) {
  const std::vector<u32> ids = test::random_ids(n, n);
  REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
}

void generate(tarn_session* session, u32 n_tokens) {
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = n_tokens;
  options.ignore_end = 1;
  REQUIRE(tarn_session_generate(session, &options) == TARN_OK);
}

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST_CASE("a prefill that goes on says what it will still take, an ended one nothing") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), "kv.context_tokens = 4096\nengine.batch_rows_max = 8\n");
  tarn_session* session = nullptr;
  tarn_session_info info = TARN_INIT(tarn_session_info);
  bool is_told = false;  // a busy machine may let nobody look before all is read
  for (u32 i = 0; i < 5 && !is_told; ++i) {
    tarn_session_destroy(session);
    session = host.session();
    feed(session, 4000);
    do {  // how well it knows is reading_time_test's matter
      REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
      if (info.n_computed == 0) CHECK(info.prefill_left_ns == 0);
      is_told = info.prefill_left_ns > 0;
    } while (!is_told && info.n_computed < 3999);
  }
  CHECK(is_told);
  REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.prefill_left_ns == 0);
  CHECK(run(session, 2).tokens.size() == 2);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.prefill_left_ns == 0);
}

// A wait that answered TARN_WOULD_BLOCK would be repeated for ever.
TEST_CASE("a prefill that memory and disk have no room for is not waited for") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir folder("given_up");
  const std::string toml =
      "kv.context_tokens = 1024\nkv.page_tokens = 16\nkv.memory_bytes = '256KiB'\n"
      "engine.batch_rows_max = 16\nstore.quota_bytes = '64MiB'\n"
      "store.daily_write_bytes = '64KiB'\nstore.path = '" +
      folder.path() + "'\n";
  Host host(model.path(), toml.c_str());
  tarn_session* session = host.session();
  feed(session, 1000);
  CHECK(tarn_session_wait(session, 20'000) == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("write budget") != std::string::npos);
}

TEST_CASE("a destroyed session is an error, and its place begins anew") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  generate(session, 4);
  tarn_session_destroy(session);
  tarn_session_destroy(session);
  const u32 id = 1;
  CHECK(tarn_session_feed(session, &id, 1) == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("destroyed") != std::string::npos);
  tarn_session_info info = TARN_INIT(tarn_session_info);
  CHECK(tarn_session_info_get(session, &info) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_truncate(session, 0) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_wait(session, 0) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_cancel(session) == TARN_INVALID_REQUEST);
  tarn_session* fork = nullptr;
  CHECK(tarn_session_fork(session, &fork) == TARN_INVALID_REQUEST);
  // Its successor has no generation to read from.
  tarn_session* next = host.session();
  tarn_event event = TARN_INIT(tarn_event);
  CHECK(tarn_session_poll(next, -1, &event) == TARN_INVALID_REQUEST);
  CHECK(host.n_fatal == 0);
}

TEST_CASE("NULL where something must stand is refused") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  u64 n = 0;
  u32 id = 0;
  char byte = 0;
  CHECK(tarn_tokenize(host.engine, "hello", 5, 0, nullptr, 100, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_tokenize(host.engine, "hello", 5, 0, nullptr, 0, &n) == TARN_INVALID_REQUEST);
  CHECK(n > 0);
  CHECK(tarn_piece(host.engine, 300, nullptr, 100, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_tokenize(nullptr, "hello", 5, 0, &id, 1, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_piece(nullptr, 0, &byte, 1, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_is_end(nullptr, 0) == 0);
  CHECK(tarn_session_feed(nullptr, &id, 1) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_tokens(session, 0, nullptr, 5, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_cancel(nullptr) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_wait(nullptr, 0) == TARN_INVALID_REQUEST);
  CHECK(tarn_session_poll(nullptr, 0, nullptr) == TARN_INVALID_REQUEST);
  tarn_session_destroy(nullptr);

  // An event is not lost to a struct that cannot take it.
  feed(session, 10);
  generate(session, 1);
  tarn_event event = TARN_INIT(tarn_event);
  event.struct_size = 0;
  CHECK(tarn_session_poll(session, 10'000, &event) == TARN_INVALID_REQUEST);
  event = TARN_INIT(tarn_event);
  REQUIRE(tarn_session_poll(session, 10'000, &event) == TARN_OK);
  CHECK(event.type == TARN_EVENT_TOKEN);
}

TEST_CASE("a stop string that is not UTF-8 is refused") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  const char* stop = "\xb9";
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.stops = &stop;
  options.n_stops = 1;
  CHECK(tarn_session_generate(session, &options) == TARN_INVALID_REQUEST);
}

TEST_CASE("destroying a session ends the poll of another thread") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  generate(session, 1);
  std::atomic<int32_t> last{TARN_OK};
  std::thread reader([&] {
    tarn_event event = TARN_INIT(tarn_event);
    while (last.load() == TARN_OK && event.type != TARN_EVENT_DONE) {
      last.store(tarn_session_poll(session, -1, &event));
    }
    // Behind DONE there is nothing to wait for.
    last.store(tarn_session_poll(session, -1, &event));
  });
  pause_ms(100);
  tarn_session_destroy(session);
  reader.join();
  CHECK(last.load() == TARN_INVALID_REQUEST);
}

TEST_CASE("closing sends the calls of other threads home first") {
  const SmallModel model("llama", "f16");
  for (int round = 0; round < 5; ++round) {
    tarn_options options = TARN_INIT(tarn_options);
    options.model_path = model.path().c_str();
    options.config_toml = "kv.context_tokens = 4096\nengine.batch_rows_max = 4\n";
    options.budget_bytes = u64{1} << 30;
    tarn_engine* engine = nullptr;
    REQUIRE(tarn_open(&options, &engine) == TARN_OK);
    tarn_session* session = nullptr;
    REQUIRE(tarn_session_create(engine, nullptr, &session) == TARN_OK);
    feed(session, 4000);
    generate(session, 10);
    std::atomic<int32_t> polled{TARN_OK};
    std::atomic<int> n_inside{0};
    std::thread reader([&] {
      tarn_event event = TARN_INIT(tarn_event);
      ++n_inside;
      polled.store(tarn_session_poll(session, -1, &event));
    });
    while (n_inside.load() == 0) pause_ms(1);
    pause_ms(10);
    tarn_close(engine);
    reader.join();
    CHECK((polled.load() == TARN_CANCELLED || polled.load() == TARN_OK));
  }
}

struct FromHook {
  tarn_engine* engine = nullptr;
  int32_t status = TARN_OK;
};

TEST_CASE("a fatal hook that calls the engine is refused, and the host lives on") {
  const SmallModel model("llama", "f16");
  FromHook seen;
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.config_toml = "kv.context_tokens = 512\ncpu.threads = 1\n";
  options.budget_bytes = u64{1} << 30;
  options.fatal_context = &seen;
  options.fatal = [](void* context, const char*, const char*, uint32_t) {
    auto& hook = *static_cast<FromHook*>(context);
    tarn_engine_status status = TARN_INIT(tarn_engine_status);
    hook.status = tarn_engine_status_get(hook.engine, &status);
    tarn_close(hook.engine);  // does nothing
  };
  REQUIRE(tarn_open(&options, &seen.engine) == TARN_OK);
  auto* instance = reinterpret_cast<api::Instance*>(seen.engine);
  const Result<void> failed = instance->service.call([]() -> Result<void> {
    TARN_ASSERT(false);
    return {};
  });
  CHECK_FALSE(failed.has_value());
  CHECK(seen.status == TARN_INVALID_REQUEST);
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  CHECK(tarn_engine_status_get(seen.engine, &status) == TARN_INTERNAL);
  CHECK(status.dead == 1);
  tarn_close(seen.engine);
}

}  // namespace
}  // namespace tarn::guest_test
