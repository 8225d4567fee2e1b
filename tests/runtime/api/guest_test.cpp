// Goal    no call of a host, however wrong or late, ends its process, hangs, or changes an answer
//         that it does not belong to.
// Method  late and repeated cancels, a model's file and a disk that fail, destroyed handles, NULL
//         buffers, calls from the engine's own callbacks, and tarn_close and tarn_session_destroy
//         under another thread's poll.
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

u64 n_tokens_of(tarn_session* session) {
  tarn_session_info info = TARN_INIT(tarn_session_info);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  return info.n_tokens;
}

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

TEST_CASE("a cancel that comes too late changes nothing") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  CHECK(run(session, 4).tokens.size() == 4);
  CHECK(tarn_session_cancel(session) == TARN_OK);
  feed(session, 100);
  REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
  CHECK(n_tokens_of(session) == 114);

  // Another session's steps do not carry it out either.
  tarn_session* other = host.session();
  CHECK(tarn_session_cancel(session) == TARN_OK);
  feed(other, 50);
  CHECK(run(other, 3).tokens.size() == 3);
  CHECK(n_tokens_of(session) == 114);
}

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

TEST_CASE("a cancelled prefill leaves what the session had, its last token too") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), "kv.context_tokens = 4096\nengine.batch_rows_max = 8\n");
  tarn_session* session = host.session();
  feed(session, 10);
  run(session, 4);
  feed(session, 3000);
  CHECK(tarn_session_cancel(session) == TARN_OK);
  REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
  CHECK(n_tokens_of(session) >= 14);
  CHECK(n_tokens_of(session) < 3014);
  CHECK(run(session, 2).tokens.size() == 2);
}

TEST_CASE("whoever waits for a prefill that is given up is told so, and what comes next goes on") {
  const SmallModel model("llama", "q8_0");
  const test::TempFile copy("given_up.gguf");
  std::filesystem::copy_file(model.path(), copy.path());
  Host host(model.path(), "kv.context_tokens = 512\nmodel.embedding = 'disk'\n");
  tarn_session* session = host.session();
  feed(session, 64);
  CHECK(tarn_session_wait(session, 10'000) == TARN_OK);
  std::filesystem::resize_file(model.path(), 1);
  feed(session, 65);
  CHECK(tarn_session_wait(session, 10'000) == TARN_IO_FAILED);
  CHECK(std::string(tarn_error_text()).find("file") != std::string::npos);
  CHECK(tarn_session_wait(session, 0) == TARN_IO_FAILED);
  CHECK(n_tokens_of(session) == 64 + 65);
  const std::string why = tarn_error_text();
  // A generation's event has no text, but its caller gets the same one.
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = 2;
  CHECK(tarn_session_run(session, &options, nullptr, nullptr) == TARN_IO_FAILED);
  CHECK(tarn_error_text() == why);
  CHECK(tarn_session_wait(session, 0) == TARN_IO_FAILED);
  CHECK(tarn_error_text() == why);
  tarn_session* fork = nullptr;
  REQUIRE(tarn_session_fork(session, &fork) == TARN_OK);
  CHECK(tarn_session_wait(fork, 0) == TARN_IO_FAILED);  // it has no more than its source
  tarn_session_destroy(fork);
  // The remedy, and each way to go on.
  std::filesystem::copy_file(copy.path(), model.path(),
                             std::filesystem::copy_options::overwrite_existing);
  feed(session, 1);
  CHECK(tarn_session_wait(session, 10'000) == TARN_OK);
  for (const bool generates : {true, false}) {
    std::filesystem::resize_file(model.path(), 1);
    feed(session, 64);
    CHECK(tarn_session_wait(session, 10'000) == TARN_IO_FAILED);
    std::filesystem::copy_file(copy.path(), model.path(),
                               std::filesystem::copy_options::overwrite_existing);
    if (generates) {
      CHECK(run(session, 2).tokens.size() == 2);
    } else {
      REQUIRE(tarn_session_truncate(session, 190) == TARN_OK);
    }
    CHECK(tarn_session_wait(session, 10'000) == TARN_OK);
  }
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

TEST_CASE("a cancel without a reader waits without computing") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  generate(session, 400);  // more than the event ring holds
  pause_ms(200);
  CHECK(tarn_session_cancel(session) == TARN_OK);
  pause_ms(50);
  const std::clock_t begin = std::clock();
  pause_ms(400);
  CHECK(static_cast<f64>(std::clock() - begin) / CLOCKS_PER_SEC < 0.2);
  tarn_event event = TARN_INIT(tarn_event);
  do {
    REQUIRE(tarn_session_poll(session, 10'000, &event) == TARN_OK);
  } while (event.type != TARN_EVENT_DONE);
  CHECK(event.finish == TARN_FINISH_CANCELLED);
}

TEST_CASE("nothing new is generated while an end is unread, whoever reads it") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  generate(session, 2);
  tarn_session_info info = TARN_INIT(tarn_session_info);
  do {
    REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  } while (info.generating != 0);
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = 2;
  CHECK(tarn_session_generate(session, &options) == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("DONE") != std::string::npos);
  std::atomic<u32> n_done{0};
  tarn_event event = TARN_INIT(tarn_event);
  do {
    REQUIRE(tarn_session_poll(session, 10'000, &event) == TARN_OK);
    n_done += event.type == TARN_EVENT_DONE ? 1 : 0;
  } while (n_done == 0);
  // A reader on another thread misses no end, however soon the next generation begins.
  constexpr u32 kRounds = 200;
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    tarn_event read = TARN_INIT(tarn_event);
    while (!ends.load()) {
      if (tarn_session_poll(session, 1, &read) != TARN_OK) continue;
      n_done += read.type == TARN_EVENT_DONE ? 1 : 0;
    }
  });
  for (u32 round = 0; round < kRounds;) {
    (void)tarn_session_truncate(session, 10);  // refused while it generates
    if (tarn_session_generate(session, &options) == TARN_OK) ++round;
  }
  while (tarn_session_generate(session, &options) != TARN_OK) {
  }
  ends.store(true);
  reader.join();
  CHECK(n_done >= 1 + kRounds);
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
