// Goal    by the C API a host lists, verifies, packs, unpacks and removes what its store holds.
// Method  engines on a small model over real folders; every call that can be wrong called wrongly.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/api/instance.h"
#include "runtime/api/tarn_store.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"

namespace tarn::store_native_test {
namespace {

using test::Host;
using test::run;
using test::SmallModel;

std::string toml_of(const test::TempDir& folder, const char* kv_type = "f16") {
  return "kv.context_tokens = 2048\nkv.type = '" + std::string(kv_type) + "'\nstore.path = '" +
         folder.path() + "'\nstore.quota_bytes = '256MiB'\nstore.sessions = true\n";
}

std::vector<tarn_stored> stored(Host& host, const char* tenant = nullptr) {
  std::vector<tarn_stored> rows(8);
  rows[0].struct_size = sizeof rows[0];
  uint64_t n = 0;
  REQUIRE(tarn_store_list(host.engine, tenant, rows.data(), rows.size(), &n) == TARN_OK);
  rows.resize(n);
  return rows;
}

TEST_CASE("what the store holds is listed, verified, packed, unpacked and removed") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir here("store_here"), there("store_there");
  const test::TempFile file("docs.pack");
  const std::vector<u32> ids = test::random_ids(1, 300), more = test::random_ids(2, 30);
  Host first(model.path(), toml_of(here).c_str());
  CHECK(stored(first).empty());
  CHECK(tarn_store_pack(first.engine, nullptr, nullptr, 0, file.path().c_str()) == TARN_NOT_FOUND);
  tarn_session* session = first.session();
  REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
  (void)run(session, 10);
  REQUIRE(tarn_session_save(session, "book") == TARN_OK);
  tarn_session* fork = nullptr;
  REQUIRE(tarn_session_fork(session, &fork) == TARN_OK);
  REQUIRE(tarn_session_feed(fork, more.data(), more.size()) == TARN_OK);
  (void)run(fork, 5);
  REQUIRE(tarn_session_save(fork, "fork") == TARN_OK);
  const std::vector<tarn_stored> rows = stored(first);
  REQUIRE(rows.size() == 2);
  for (const tarn_stored& row : rows) {
    const bool is_book = std::string(row.name) == "book";
    CHECK(row.n_tokens == (is_book ? 310 : 345));
    CHECK(row.n_kept + 1 == row.n_tokens);
    CHECK(row.bytes > 0);
    CHECK(row.saved_at_s > 0);
    CHECK(row.struct_size == sizeof row);
  }
  uint64_t n = 0;
  tarn_stored one = TARN_INIT(tarn_stored);
  CHECK(tarn_store_list(first.engine, nullptr, &one, 1, &n) == TARN_OK);
  CHECK(n == 2);
  CHECK(tarn_store_list(first.engine, nullptr, nullptr, 0, &n) == TARN_OK);
  CHECK(n == 2);
  tarn_stored bad{};
  CHECK(tarn_store_list(first.engine, nullptr, &bad, 1, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_store_list(first.engine, nullptr, nullptr, 1, &n) == TARN_INVALID_REQUEST);
  CHECK(tarn_store_list(first.engine, nullptr, &one, 1, nullptr) == TARN_INVALID_REQUEST);

  tarn_store_checked checked = TARN_INIT(tarn_store_checked);
  REQUIRE(tarn_store_check(first.engine, 0, &checked) == TARN_OK);
  CHECK(checked.n_records > 2);
  CHECK(checked.n_bytes > 0);
  CHECK(checked.n_damaged == 0);
  CHECK(tarn_store_check(first.engine, 0, nullptr) == TARN_INVALID_REQUEST);

  const char* const both[] = {"book", "fork"};
  REQUIRE(tarn_store_pack(first.engine, nullptr, both, 2, file.path().c_str()) == TARN_OK);
  const u64 n_bytes = std::filesystem::file_size(file.path());
  REQUIRE(tarn_store_pack(first.engine, nullptr, nullptr, 0, file.path().c_str()) == TARN_OK);
  CHECK(std::filesystem::file_size(file.path()) <= n_bytes + 8 * kMiB);
  const char* const unknown[] = {"book", "nobody"};
  CHECK(tarn_store_pack(first.engine, nullptr, unknown, 2, file.path().c_str()) == TARN_NOT_FOUND);
  const char* const none[] = {nullptr};
  CHECK(tarn_store_pack(first.engine, nullptr, none, 1, file.path().c_str()) ==
        TARN_INVALID_REQUEST);
  CHECK(tarn_store_pack(first.engine, nullptr, nullptr, 1, file.path().c_str()) ==
        TARN_INVALID_REQUEST);
  CHECK(tarn_store_pack(first.engine, nullptr, both, 2, nullptr) == TARN_INVALID_REQUEST);
  REQUIRE(tarn_session_feed(fork, more.data(), more.size()) == TARN_OK);
  const std::vector<u32> want = run(fork, 20).tokens;

  {
    const test::TempDir wrong("store_wrong");
    Host other(model.path(), toml_of(wrong, "q8_0").c_str());
    CHECK(tarn_store_unpack(other.engine, nullptr, file.path().c_str(), nullptr, nullptr) ==
          TARN_INVALID_REQUEST);
    CHECK(std::string(tarn_error_text()).find("kv.type") != std::string::npos);
    CHECK(stored(other).empty());
  }
  Host second(model.path(), toml_of(there).c_str());
  tarn_unpacked unpacked = TARN_INIT(tarn_unpacked);
  REQUIRE(tarn_store_unpack(second.engine, nullptr, file.path().c_str(), nullptr, &unpacked) ==
          TARN_OK);
  CHECK(unpacked.n_sessions == 2);
  CHECK(unpacked.n_there == 0);
  CHECK(unpacked.n_tokens == 310 + 345);
  CHECK(unpacked.n_kept == 309 + 344);
  REQUIRE(tarn_store_unpack(second.engine, nullptr, file.path().c_str(), nullptr, &unpacked) ==
          TARN_OK);
  CHECK(unpacked.n_there == 2);
  CHECK(tarn_store_unpack(second.engine, nullptr, file.path().c_str(), "one", &unpacked) ==
        TARN_INVALID_REQUEST);
  CHECK(tarn_store_unpack(second.engine, nullptr, nullptr, nullptr, nullptr) ==
        TARN_INVALID_REQUEST);
  tarn_session* restored = nullptr;
  tarn_restored how = TARN_INIT(tarn_restored);
  REQUIRE(tarn_session_restore(second.engine, nullptr, "fork", &restored, &how) == TARN_OK);
  CHECK(how.n_computed == 344);
  // An open session is no hindrance to what is there already.
  CHECK(tarn_store_unpack(second.engine, nullptr, file.path().c_str(), nullptr, &unpacked) ==
        TARN_OK);
  REQUIRE(tarn_session_feed(restored, more.data(), more.size()) == TARN_OK);
  CHECK(run(restored, 20).tokens == want);

  CHECK(tarn_store_remove(second.engine, nullptr, "fork") == TARN_INVALID_REQUEST);  // it is open
  CHECK(tarn_store_remove(second.engine, nullptr, "book") == TARN_OK);
  CHECK(tarn_store_remove(second.engine, nullptr, "book") == TARN_NOT_FOUND);
  CHECK(tarn_store_remove(second.engine, nullptr, nullptr) == TARN_INVALID_REQUEST);
}

TEST_CASE("a tenant's saved sessions are listed and removed by their own tenant alone") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir folder("store_tenants");
  const std::vector<u32> ids = test::random_ids(1, 300);
  constexpr const char* kTenants[] = {nullptr, "a", "b"};
  const auto names_of = [](Host& host, const char* tenant) {
    std::vector<std::string> names;
    for (const tarn_stored& row : stored(host, tenant)) names.emplace_back(row.name);
    return names;
  };
  const std::vector<std::string> none, book = {"book"};
  {
    Host host(model.path(), toml_of(folder).c_str());
    tarn_ingest_options options = TARN_INIT(tarn_ingest_options);
    tarn_ingested done = TARN_INIT(tarn_ingested);
    for (const char* tenant : {kTenants[1], kTenants[0]}) {  // of one name
      options.tenant = tenant;
      REQUIRE(tarn_ingest(host.engine, &options, "book", ids.data(), ids.size(), &done) == TARN_OK);
      CHECK(done.n_reused == 0);  // of the other's
    }
    CHECK(names_of(host, nullptr) == book);
    CHECK(names_of(host, "a") == book);
    CHECK(names_of(host, "b") == none);
    CHECK(names_of(host, "") == book);  // the default tenant's
  }
  Host host(model.path(), toml_of(folder).c_str());
  CHECK(tarn_store_remove(host.engine, "b", "book") == TARN_NOT_FOUND);
  CHECK(tarn_store_remove(host.engine, nullptr, "book") == TARN_OK);
  CHECK(tarn_store_remove(host.engine, nullptr, "book") == TARN_NOT_FOUND);
  CHECK(names_of(host, nullptr) == none);
  CHECK(names_of(host, "a") == book);
  tarn_session_options whose = TARN_INIT(tarn_session_options);
  tarn_session* restored = nullptr;
  for (const char* tenant : kTenants) {
    CAPTURE(tenant != nullptr ? tenant : "");
    const bool is_its_own = tenant == kTenants[1];
    whose.tenant = tenant;
    tarn_restored how = TARN_INIT(tarn_restored);
    const int32_t status = tarn_session_restore(host.engine, &whose, "book", &restored, &how);
    CHECK(status == (is_its_own ? TARN_OK : TARN_NOT_FOUND));
    if (is_its_own) CHECK(how.n_computed + 1 == ids.size());  // nothing of it was removed
    if (is_its_own) CHECK(tarn_store_remove(host.engine, "a", "book") == TARN_INVALID_REQUEST);
    tarn_session_destroy(restored);
  }
  CHECK(tarn_store_remove(host.engine, "a", "book") == TARN_OK);
  CHECK(names_of(host, "a") == none);
}

TEST_CASE("all tenants' sessions are listed and moved in one file, each to its own or to one") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir here("tenants_here"), there("tenants_there");
  const test::TempFile file("tenants.pack");
  const std::vector<u32> ids = test::random_ids(1, 200);
  const auto tenants_of = [](Host& host) {
    std::vector<std::string> tenants;
    for (const tarn_stored& row : stored(host, TARN_ALL_TENANTS)) tenants.emplace_back(row.tenant);
    std::sort(tenants.begin(), tenants.end());
    return tenants;
  };
  Host first(model.path(), toml_of(here).c_str());
  for (const char* tenant : {static_cast<const char*>(nullptr), "a", "b"}) {
    tarn_ingest_options options = TARN_INIT(tarn_ingest_options);
    options.tenant = tenant;
    REQUIRE(tarn_ingest(first.engine, &options, "book", ids.data(), ids.size(), nullptr) ==
            TARN_OK);
  }
  CHECK(tenants_of(first) == std::vector<std::string>{"", "a", "b"});
  const char* const path = file.path().c_str();
  constexpr const char* kBook[] = {"book"};
  tarn_unpacked done = TARN_INIT(tarn_unpacked);
  // One name is one tenant's, and no session can be everybody's.
  CHECK(tarn_store_pack(first.engine, TARN_ALL_TENANTS, kBook, 1, path) == TARN_INVALID_REQUEST);
  CHECK(tarn_store_remove(first.engine, TARN_ALL_TENANTS, "book") == TARN_INVALID_REQUEST);
  tarn_session_options whose = TARN_INIT(tarn_session_options);
  whose.tenant = TARN_ALL_TENANTS;
  tarn_session* session = nullptr;
  CHECK(tarn_session_create(first.engine, &whose, &session) == TARN_INVALID_REQUEST);
  const std::string long_name(129, 't');
  whose.tenant = long_name.c_str();
  REQUIRE(tarn_session_create(first.engine, &whose, &session) == TARN_OK);
  CHECK(tarn_session_keep(session, "book") == TARN_INVALID_REQUEST);
  CHECK(std::string(tarn_error_text()).find("tenant") != std::string::npos);

  Host second(model.path(), toml_of(there).c_str());
  REQUIRE(tarn_store_pack(first.engine, TARN_ALL_TENANTS, nullptr, 0, path) == TARN_OK);
  REQUIRE(tarn_store_unpack(second.engine, TARN_ALL_TENANTS, path, nullptr, &done) == TARN_OK);
  CHECK(done.n_sessions == 3);
  CHECK(tenants_of(second) == std::vector<std::string>{"", "a", "b"});
  REQUIRE(tarn_store_pack(first.engine, "a", nullptr, 0, path) == TARN_OK);
  REQUIRE(tarn_store_unpack(second.engine, "c", path, nullptr, &done) == TARN_OK);
  CHECK(done.n_sessions == 1);
  CHECK(tenants_of(second) == std::vector<std::string>{"", "a", "b", "c"});
  // It is the tenant's own there: what it asks is found, with its KV.
  for (const char* tenant : {"a", "c"}) {
    whose.tenant = tenant;
    tarn_restored restored = TARN_INIT(tarn_restored);
    REQUIRE(tarn_session_restore(second.engine, &whose, "book", &session, &restored) == TARN_OK);
    CHECK(restored.n_computed + 1 == ids.size());
  }
}

}  // namespace
}  // namespace tarn::store_native_test
