// Goal    by the C API a session outlives its engine: kept, saved, restored, exported, imported and
//         deleted; a prompt whose reading was cut off shows where it is after a restart, and can be
//         cancelled there, at once.
// Method  engines on a small model over real folders; every call that can be wrong called wrongly.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/instance.h"
#include "runtime/api/tarn_store.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"

namespace tarn::kept_native_test {
namespace {

using test::Host;
using test::run;
using test::SmallModel;

std::string toml_of(const test::TempDir& folder) {
  return "kv.context_tokens = 2048\nstore.path = '" + folder.path() +
         "'\nstore.quota_bytes = '256MiB'\nstore.sessions = true\nengine.batch_rows_max = 32\n";
}

std::string error() { return tarn_error_text(); }

tarn_session_info info_of(tarn_session* session) {
  tarn_session_info info = TARN_INIT(tarn_session_info);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  return info;
}

TEST_CASE("a session goes from one engine to another by way of a file") {
  const SmallModel model("llama", "q8_0"), other_model("llama", "q8_0", 2);
  const test::TempDir here("kept_here"), there("kept_there");
  const test::TempFile file("kept.session");
  const std::vector<u32> ids = test::random_ids(1, 300), more = test::random_ids(2, 30);
  Host first(model.path(), toml_of(here).c_str());
  tarn_session* session = first.session();
  REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
  (void)run(session, 10);
  REQUIRE(tarn_session_save(session, "talk") == TARN_OK);
  constexpr const char* kTalk[] = {"talk"};
  REQUIRE(tarn_store_pack(first.engine, nullptr, kTalk, 1, file.path().c_str()) == TARN_OK);
  REQUIRE(tarn_session_feed(session, more.data(), more.size()) == TARN_OK);
  const std::vector<u32> want = run(session, 20).tokens;

  {
    const test::TempDir wrong("kept_wrong");
    Host other(other_model.path(), toml_of(wrong).c_str());
    CHECK(tarn_store_unpack(other.engine, nullptr, file.path().c_str(), nullptr, nullptr) ==
          TARN_INVALID_REQUEST);
    CHECK(error().find("another model") != std::string::npos);
  }
  Host second(model.path(), toml_of(there).c_str());
  for (const char* name : {"moved", static_cast<const char*>(nullptr)}) {
    REQUIRE(tarn_store_unpack(second.engine, nullptr, file.path().c_str(), name, nullptr) ==
            TARN_OK);
  }
  CHECK(tarn_store_remove(second.engine, nullptr, "talk") == TARN_OK);
  CHECK(tarn_store_remove(second.engine, nullptr, "talk") == TARN_NOT_FOUND);
  CHECK(tarn_store_remove(second.engine, nullptr, nullptr) == TARN_INVALID_REQUEST);
  CHECK(tarn_store_remove(nullptr, nullptr, "talk") == TARN_INVALID_REQUEST);
  tarn_session* moved = nullptr;
  tarn_restored restored = TARN_INIT(tarn_restored);
  CHECK(tarn_session_restore(second.engine, nullptr, "talk", &moved, nullptr) == TARN_NOT_FOUND);
  REQUIRE(tarn_session_restore(second.engine, nullptr, "moved", &moved, &restored) == TARN_OK);
  CHECK(restored.n_tokens == 310);
  CHECK(restored.n_computed == 309);
  CHECK(restored.cut_off == 0);
  CHECK(tarn_store_remove(second.engine, nullptr, "moved") == TARN_INVALID_REQUEST);  // it is open
  REQUIRE(tarn_session_feed(moved, more.data(), more.size()) == TARN_OK);
  CHECK(run(moved, 20).tokens == want);
  tarn_session_destroy(moved);
  CHECK(tarn_store_remove(second.engine, nullptr, "moved") == TARN_OK);
}

TEST_CASE("reading that was cut off shows where it is after a restart, and ends when asked") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir folder("kept_progress");
  const std::string toml = toml_of(folder);
  const std::vector<u32> ids = test::random_ids(1, 2000);
  {
    Host first(model.path(), toml.c_str());
    tarn_session* session = first.session();
    REQUIRE(tarn_session_keep(session, "talk") == TARN_OK);
    REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
    while (info_of(session).n_computed < 300) tarn_session_wait(session, 1);
    REQUIRE(tarn_session_save(session, "talk") == TARN_OK);  // while it reads on
  }
  Host second(model.path(), toml.c_str());
  tarn_session* session = nullptr;
  tarn_restored restored = TARN_INIT(tarn_restored);
  REQUIRE(tarn_session_restore(second.engine, nullptr, "talk", &session, &restored) == TARN_OK);
  CHECK(restored.cut_off == 1);
  CHECK(restored.n_tokens == ids.size());
  REQUIRE(restored.n_computed < ids.size() - 1);
  CHECK(restored.n_computed > 0);
  u64 n_before = restored.n_computed;
  for (u32 i = 0; i < 3; ++i) {  // it goes on by itself, and says how far it is
    while (info_of(session).n_computed == n_before) {
      CHECK(tarn_session_wait(session, 1) != TARN_IO_FAILED);
    }
    CHECK(info_of(session).n_tokens == ids.size());
    CHECK(info_of(session).n_computed > n_before);
    n_before = info_of(session).n_computed;
  }
  REQUIRE(n_before < ids.size() - 1);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(tarn_session_cancel(session) == TARN_OK);
  REQUIRE(tarn_session_wait(session, 5000) == TARN_OK);
  const auto took = std::chrono::steady_clock::now() - begin;
  MESSAGE("cancelled within ", std::chrono::duration<f64, std::milli>(took).count(), " ms");
  CHECK(took < std::chrono::milliseconds(test::kSlowBuild ? 2000 : 100));
  const tarn_session_info info = info_of(session);
  CHECK(info.n_computed < ids.size() - 1);
}

TEST_CASE("a document that was read ahead is there for the sessions of its tenant") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir folder("ingested");
  const std::string toml = toml_of(folder);
  const std::vector<u32> ids = test::random_ids(1, 300), longer = test::random_ids(1, 1900);
  tarn_session_options whose = TARN_INIT(tarn_session_options);
  whose.tenant = "alice";
  tarn_ingest_options options = TARN_INIT(tarn_ingest_options);
  options.tenant = whose.tenant;
  tarn_ingested done = TARN_INIT(tarn_ingested);
  const auto ingest = [&](Host& host, const std::vector<u32>& text, const char* name) {
    return tarn_ingest(host.engine, &options, name, text.data(), text.size(), &done);
  };
  {
    Host first(model.path(), toml.c_str());
    REQUIRE(ingest(first, ids, "book") == TARN_OK);
    CHECK(done.n_reused == 0);
    CHECK(done.bytes_written > 0);
    REQUIRE(ingest(first, ids, "book") == TARN_OK);
    CHECK(done.n_reused == ids.size());
    CHECK(done.bytes_written == 0);
    CHECK(ingest(first, test::random_ids(2, 300), "book") == TARN_INVALID_REQUEST);
    CHECK(error().find("another text") != std::string::npos);
    CHECK(ingest(first, {ids.begin(), ids.begin() + 200}, "book") == TARN_INVALID_REQUEST);
    CHECK(ingest(first, test::random_ids(1, 3000), "book") == TARN_INVALID_REQUEST);
    tarn_error why = TARN_INIT(tarn_error);
    REQUIRE(tarn_error_get(&why) == TARN_OK);
    CHECK(why.reason == TARN_REASON_CONTEXT_TOO_LONG);
    CHECK(ingest(first, {}, "book") == TARN_INVALID_REQUEST);
    CHECK(ingest(first, ids, nullptr) == TARN_INVALID_REQUEST);
    CHECK(ingest(first, ids, "") == TARN_INVALID_REQUEST);
    CHECK(tarn_ingest(first.engine, nullptr, "book", nullptr, 3, nullptr) == TARN_INVALID_REQUEST);
  }
  Host second(model.path(), toml.c_str());
  for (const char* tenant : {"alice", "bob"}) {
    whose.tenant = tenant;
    tarn_session* session = nullptr;
    REQUIRE(tarn_session_create(second.engine, &whose, &session) == TARN_OK);
    REQUIRE(tarn_session_feed(session, longer.data(), ids.size()) == TARN_OK);
    REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
    CHECK(info_of(session).reused_from_disk == (tenant == options.tenant ? 256 : 0));
    tarn_session_destroy(session);
  }
  // Cancelled and repeated, with a text that begins with the one that is there.
  options.progress = [](void* n_calls, const tarn_session_info*) -> int32_t {
    return ++*static_cast<u32*>(n_calls) > 0 ? 1 : 0;
  };
  u32 n_calls = 0;
  options.progress_context = &n_calls;
  const int32_t status = ingest(second, longer, "book");
  CHECK(status == (n_calls > 0 ? TARN_CANCELLED : TARN_OK));
  if (n_calls > 0) CHECK(done.bytes_written == 0);
  options.progress = nullptr;
  REQUIRE(ingest(second, longer, "book") == TARN_OK);
  CHECK(done.n_reused >= 256);
  tarn_session* book = nullptr;
  whose.tenant = options.tenant;
  REQUIRE(tarn_session_restore(second.engine, &whose, "book", &book, nullptr) == TARN_OK);
  CHECK(info_of(book).n_tokens == longer.size());
}

TEST_CASE("progress, waits and cancels do not wait for a long step") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path(), "kv.context_tokens = 2048\nengine.batch_rows_max = 32\n");
  tarn_session* session = host.session();
  const std::vector<u32> ids = test::random_ids(1, 2000);
  REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
  // The engine's thread stands still, as in a step of a large model, but no longer than 5 s.
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto has_passed = [&](u32 ms) {
    return Clock::now() - begin > std::chrono::milliseconds(ms);
  };
  std::atomic<bool> stands{false}, goes_on{false};
  auto& service = reinterpret_cast<api::Instance*>(host.engine)->service;
  std::thread long_step([&] {
    (void)service.call([&]() -> Result<void> {
      stands.store(true);
      while (!goes_on.load() && !has_passed(5000)) std::this_thread::yield();
      return {};
    });
  });
  while (!stands.load()) std::this_thread::yield();
  const tarn_session_info info = info_of(session);
  CHECK(info.n_tokens == ids.size());
  CHECK(info.n_computed < ids.size() - 1);
  CHECK(tarn_session_wait(session, 20) == TARN_WOULD_BLOCK);
  CHECK(tarn_session_cancel(session) == TARN_OK);
  CHECK_FALSE(has_passed(4000));
  goes_on.store(true);
  long_step.join();
  REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
  CHECK(info_of(session).n_tokens < ids.size());
}

}  // namespace
}  // namespace tarn::kept_native_test
