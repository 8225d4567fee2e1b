// Goal    a submitted call does what its blocking form does: the same out-parameters, tokens and
//         errors; it is refused at once where its arguments are wrong by themselves; replies come
//         once each; the 257th finds no place. (A session's calls are carried out in order:
//         many_callers.)
// Method  each form that the headers declare, in a table: on two worlds that are equal, blocking on
//         one and submitted on the other; then the same on a destroyed session and without a store.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "runtime/api/tarn_store.h"
#include "tests/runtime/api/event_loop.h"
#include "tests/runtime/api/held_engine.h"
#include "tests/runtime/api/host.h"
#include "tests/support/folders.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"

namespace tarn::submit_test {
namespace {

using test::Held;
using test::Host;
using test::is_readable;
using test::SmallModel;
using test::take_reply;

constexpr tarn_part kChunk{.struct_size = sizeof(tarn_part),
                           .is_chunk = 1,
                           .text = "baker bread",
                           .text_bytes = 11,
                           .ids = nullptr,
                           .n_ids = 0};
constexpr char kMessages[] = R"([{"role":"user","content":"baker bread"}])";

// An engine with a session, one that was saved, and a place for all that calls give out.
struct World {
  World(const SmallModel& model, bool keeps)
      : folder("submit_test"), host(model.path(), toml(keeps).c_str(), "chatml") {
    session = host.session();
    REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
    REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
    if (!keeps) return;
    tarn_session* saved = host.session();
    REQUIRE(tarn_session_feed(saved, ids.data(), 20) == TARN_OK);
    REQUIRE(tarn_session_save(saved, "saved") == TARN_OK);
    tarn_session_destroy(saved);
    REQUIRE(tarn_store_pack(host.engine, nullptr, nullptr, 0, packed().c_str()) == TARN_OK);
  }
  std::string toml(bool keeps) const {
    if (!keeps) return "kv.context_tokens = 512\n";
    return "kv.context_tokens = 512\nkv.page_tokens = 16\nstore.quota_bytes = '64MiB'\n"
           "store.sessions = true\nstore.path = '" +
           folder.path() + "'\n";
  }
  std::string packed() const { return folder.path() + "/packed"; }
  std::string packed_again() const { return folder.path() + "/packed_again"; }

  test::TempDir folder;
  Host host;
  tarn_session* session = nullptr;
  std::vector<u32> ids = test::random_ids(7, 40);
  // Out-parameters.
  tarn_session* session_out = nullptr;
  u32 ids_out[64] = {};
  char text_out[256] = {};
  u64 n = 0, n_text = 0;
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  tarn_restored restored = TARN_INIT(tarn_restored);
  tarn_stored row = TARN_INIT(tarn_stored);
  tarn_store_checked checked = TARN_INIT(tarn_store_checked);
  tarn_unpacked unpacked = TARN_INIT(tarn_unpacked);
  std::string packed_path = packed(), again_path = packed_again();

  // All that a call may have changed, and may not differ from run to run.
  std::string described();
};

std::string read_answer(tarn_session* session) {
  std::string said;
  tarn_event event = TARN_INIT(tarn_event);
  while (tarn_session_poll(session, 10'000, &event) == TARN_OK) {
    if (event.type == TARN_EVENT_TOKEN) said += std::to_string(event.token) + " ";
    if (event.type == TARN_EVENT_DONE) said += tarn_finish_name(event.finish);
  }
  return said;
}

std::string World::described() {
  std::stringstream out;
  out << "n " << n << " n_text " << n_text << " text " << text_out << " ids";
  for (const u32 id : ids_out) out << " " << id;
  out << " answer " << read_answer(session);
  tarn_session_row rows[8] = {TARN_INIT(tarn_session_row)};
  u64 n_sessions = 0;
  REQUIRE(tarn_session_list(host.engine, rows, 8, &n_sessions) == TARN_OK);
  for (u64 i = 0; i < n_sessions; ++i) {
    tarn_session_wait(rows[i].session, -1);
    u32 tokens[512];
    u64 n_tokens = 0;
    REQUIRE(tarn_session_tokens(rows[i].session, 0, tokens, 512, &n_tokens) == TARN_OK);
    out << "\nsession " << (rows[i].session == session) << (rows[i].session == session_out);
    for (u64 t = 0; t < n_tokens; ++t) out << " " << tokens[t];
  }
  out << "\nstatus " << status.device << " " << status.n_vocab << " " << status.n_sessions
      << " restored " << restored.n_tokens << " " << restored.n_computed << " row " << row.name
      << " " << row.n_tokens << " " << row.n_kept << " checked " << checked.n_records << " "
      << checked.n_damaged << " unpacked " << unpacked.n_sessions << " " << unpacked.n_there
      << " packed " << std::filesystem::exists(packed_again());
  tarn_stored stored[8] = {TARN_INIT(tarn_stored)};
  u64 n_stored = 0;
  if (tarn_store_list(host.engine, nullptr, stored, 8, &n_stored) == TARN_OK) {
    for (u64 i = 0; i < n_stored; ++i) out << "\nstored " << stored[i].name;
  }
  return out.str();
}

struct SubmitCase {
  const char* name;
  int32_t (*submit)(World& w, void* request);
  int32_t (*block)(World& w);
};

constexpr tarn_generate_options greedy(u32 n_tokens) {
  tarn_generate_options options{};
  options.struct_size = sizeof options;
  options.max_tokens = n_tokens;
  options.ignore_end = 1;
  return options;
}
constexpr tarn_generate_options kGenerate = greedy(5);

constexpr SubmitCase kCases[] = {
    {"tarn_submit_create",
     [](World& w, void* r) {
       return tarn_submit_create(w.host.engine, nullptr, &w.session_out, r);
     },
     [](World& w) { return tarn_session_create(w.host.engine, nullptr, &w.session_out); }},
    {"tarn_submit_destroy", [](World& w, void* r) { return tarn_submit_destroy(w.session, r); },
     [](World& w) {
       tarn_session_info info = TARN_INIT(tarn_session_info);
       const int32_t was_there = tarn_session_info_get(w.session, &info);
       tarn_session_destroy(w.session);
       return was_there;
     }},
    {"tarn_submit_feed",
     [](World& w, void* r) { return tarn_submit_feed(w.session, w.ids.data(), 3, r); },
     [](World& w) { return tarn_session_feed(w.session, w.ids.data(), 3); }},
    {"tarn_submit_feed_text",
     [](World& w, void* r) { return tarn_submit_feed_text(w.session, "baker", 5, 0, r); },
     [](World& w) { return tarn_session_feed_text(w.session, "baker", 5, 0); }},
    {"tarn_submit_feed_chat",
     [](World& w, void* r) {
       return tarn_submit_feed_chat(w.session, kMessages, sizeof kMessages - 1, nullptr, r);
     },
     [](World& w) {
       return tarn_session_feed_chat(w.session, kMessages, sizeof kMessages - 1, nullptr);
     }},
    {"tarn_submit_feed_parts",
     [](World& w, void* r) { return tarn_submit_feed_parts(w.session, &kChunk, 1, 0.5f, 0, r); },
     [](World& w) { return tarn_session_feed_parts(w.session, &kChunk, 1, 0.5f, 0); }},
    {"tarn_submit_generate",
     [](World& w, void* r) { return tarn_submit_generate(w.session, &kGenerate, r); },
     [](World& w) { return tarn_session_generate(w.session, &kGenerate); }},
    {"tarn_submit_wait", [](World& w, void* r) { return tarn_submit_wait(w.session, -1, r); },
     [](World& w) { return tarn_session_wait(w.session, -1); }},
    {"tarn_submit_tokens",
     [](World& w, void* r) { return tarn_submit_tokens(w.session, 3, w.ids_out, 64, &w.n, r); },
     [](World& w) { return tarn_session_tokens(w.session, 3, w.ids_out, 64, &w.n); }},
    {"tarn_submit_truncate",
     [](World& w, void* r) { return tarn_submit_truncate(w.session, 7, r); },
     [](World& w) { return tarn_session_truncate(w.session, 7); }},
    {"tarn_submit_fork",
     [](World& w, void* r) { return tarn_submit_fork(w.session, &w.session_out, r); },
     [](World& w) { return tarn_session_fork(w.session, &w.session_out); }},
    {"tarn_submit_tokenize",
     [](World& w, void* r) {
       return tarn_submit_tokenize(w.host.engine, "bakeri", 6, 0, w.ids_out, 64, &w.n, r);
     },
     [](World& w) { return tarn_tokenize(w.host.engine, "bakeri", 6, 0, w.ids_out, 64, &w.n); }},
    {"tarn_submit_chat_render",
     [](World& w, void* r) {
       return tarn_submit_chat_render(w.host.engine, kMessages, sizeof kMessages - 1, nullptr,
                                      w.text_out, sizeof w.text_out - 1, &w.n_text, w.ids_out, 64,
                                      &w.n, r);
     },
     [](World& w) {
       return tarn_chat_render(w.host.engine, kMessages, sizeof kMessages - 1, nullptr, w.text_out,
                               sizeof w.text_out - 1, &w.n_text, w.ids_out, 64, &w.n);
     }},
    {"tarn_submit_engine_status_get",
     [](World& w, void* r) { return tarn_submit_engine_status_get(w.host.engine, &w.status, r); },
     [](World& w) { return tarn_engine_status_get(w.host.engine, &w.status); }},
    {"tarn_submit_keep", [](World& w, void* r) { return tarn_submit_keep(w.session, "mine", r); },
     [](World& w) { return tarn_session_keep(w.session, "mine"); }},
    {"tarn_submit_save", [](World& w, void* r) { return tarn_submit_save(w.session, "mine", r); },
     [](World& w) { return tarn_session_save(w.session, "mine"); }},
    {"tarn_submit_restore",
     [](World& w, void* r) {
       return tarn_submit_restore(w.host.engine, nullptr, "saved", &w.session_out, &w.restored, r);
     },
     [](World& w) {
       return tarn_session_restore(w.host.engine, nullptr, "saved", &w.session_out, &w.restored);
     }},
    {"tarn_submit_store_list",
     [](World& w, void* r) {
       return tarn_submit_store_list(w.host.engine, nullptr, &w.row, 1, &w.n, r);
     },
     [](World& w) { return tarn_store_list(w.host.engine, nullptr, &w.row, 1, &w.n); }},
    {"tarn_submit_store_remove",
     [](World& w, void* r) { return tarn_submit_store_remove(w.host.engine, nullptr, "saved", r); },
     [](World& w) { return tarn_store_remove(w.host.engine, nullptr, "saved"); }},
    {"tarn_submit_store_check",
     [](World& w, void* r) { return tarn_submit_store_check(w.host.engine, 0, &w.checked, r); },
     [](World& w) { return tarn_store_check(w.host.engine, 0, &w.checked); }},
    {"tarn_submit_store_pack",
     [](World& w, void* r) {
       return tarn_submit_store_pack(w.host.engine, nullptr, nullptr, 0, w.again_path.c_str(), r);
     },
     [](World& w) {
       return tarn_store_pack(w.host.engine, nullptr, nullptr, 0, w.again_path.c_str());
     }},
    {"tarn_submit_store_unpack",
     [](World& w, void* r) {
       return tarn_submit_store_unpack(w.host.engine, nullptr, w.packed_path.c_str(), nullptr,
                                       &w.unpacked, r);
     },
     [](World& w) {
       return tarn_store_unpack(w.host.engine, nullptr, w.packed_path.c_str(), nullptr,
                                &w.unpacked);
     }},
};

TEST_CASE("the table has every form that the headers declare") {
  std::set<std::string> want, got;
  const std::regex declared(R"(TARN_API int32_t (tarn_submit_\w+)\()");
  for (const char* name :
       {"tarn.h", "tarn_chat.h", "tarn_chunks.h", "tarn_explain.h", "tarn_store.h"}) {
    std::stringstream text;
    text << std::ifstream(test::source_folder() + "/runtime/api/" + name).rdbuf();
    const std::string header = text.str();
    for (auto i = std::sregex_iterator(header.begin(), header.end(), declared);
         i != std::sregex_iterator(); ++i) {
      want.insert((*i)[1].str());
    }
  }
  for (const SubmitCase& c : kCases) got.insert(c.name);
  CHECK(want.size() > 20);
  CHECK(want == got);
}

// Both forms on worlds of one kind.
void check_same(const SmallModel& model, bool keeps, bool has_session) {
  for (const SubmitCase& c : kCases) {
    CAPTURE(std::string(c.name));
    World blocking(model, keeps), submitting(model, keeps);
    if (!has_session) {
      tarn_session_destroy(blocking.session);
      tarn_session_destroy(submitting.session);
    }
    const int32_t want = c.block(blocking);
    const std::string why = want == TARN_OK ? "" : tarn_error_text();
    REQUIRE(c.submit(submitting, &submitting) == TARN_OK);
    const tarn_event reply = take_reply(submitting.host.engine);
    CHECK(reply.status == want);
    CHECK(std::string(reply.text) == why);
    CHECK(reply.text_bytes == why.size());
    CHECK(reply.request == &submitting);
    CHECK((reply.session == nullptr || reply.session == submitting.session ||
           reply.session == submitting.session_out));
    CHECK(submitting.described() == blocking.described());
    tarn_event event = TARN_INIT(tarn_event);
    CHECK(tarn_engine_take(submitting.host.engine, &event) == TARN_WOULD_BLOCK);
  }
}

TEST_CASE("a submitted call has the results of a blocking one") {
  const SmallModel model("llama", "q8_0");
  check_same(model, /*keeps=*/true, /*has_session=*/true);
}

TEST_CASE("a submitted call fails as a blocking one does, and its reply has the sentence") {
  const SmallModel model("llama", "q8_0");
  check_same(model, /*keeps=*/false, /*has_session=*/true);
  check_same(model, /*keeps=*/false, /*has_session=*/false);
}

TEST_CASE("what is wrong by itself is refused at once, without a reply") {
  const SmallModel model("llama", "f16");
  World w(model, /*keeps=*/false);
  tarn_engine* const engine = w.host.engine;
  tarn_generate_options no_stops = kGenerate;
  no_stops.n_stops = 1;
  tarn_session_options no_priority = TARN_INIT(tarn_session_options);
  no_priority.priority = 2;
  const int32_t refused[] = {
      tarn_submit_create(engine, nullptr, nullptr, &w),
      tarn_submit_create(engine, &no_priority, &w.session_out, &w),
      tarn_submit_feed(w.session, nullptr, 3, &w),
      tarn_submit_feed_text(w.session, nullptr, 3, 0, &w),
      tarn_submit_feed_text(w.session, "a", 1, 64, &w),
      tarn_submit_feed_chat(w.session, nullptr, 0, nullptr, &w),
      tarn_submit_feed_parts(w.session, nullptr, 1, 0.5f, 0, &w),
      tarn_submit_generate(w.session, nullptr, &w),
      tarn_submit_generate(w.session, &no_stops, &w),
      tarn_submit_tokens(w.session, 0, nullptr, 3, &w.n, &w),
      tarn_submit_truncate(w.session, u64{1} << 40, &w),
      tarn_submit_fork(w.session, nullptr, &w),
      tarn_submit_tokenize(engine, "a", 1, 0, w.ids_out, 64, nullptr, &w),
      tarn_submit_chat_render(engine, kMessages, 1, nullptr, nullptr, 3, &w.n_text, nullptr, 0,
                              &w.n, &w),
      tarn_submit_engine_status_get(engine, nullptr, &w),
      tarn_submit_keep(w.session, nullptr, &w),
      tarn_submit_save(w.session, nullptr, &w),
      tarn_submit_restore(engine, nullptr, nullptr, &w.session_out, nullptr, &w),
      tarn_submit_store_list(engine, nullptr, nullptr, 1, &w.n, &w),
      tarn_submit_store_remove(engine, nullptr, nullptr, &w),
      tarn_submit_store_check(engine, 0, nullptr, &w),
      tarn_submit_store_pack(engine, nullptr, nullptr, 1, "x", &w),
      tarn_submit_store_unpack(engine, nullptr, nullptr, nullptr, nullptr, &w),
  };
  for (u64 i = 0; i < std::size(refused); ++i) {
    CAPTURE(i);
    CHECK(refused[i] == TARN_INVALID_REQUEST);
  }
  tarn_event event = TARN_INIT(tarn_event);
  CHECK(tarn_engine_take(engine, &event) == TARN_WOULD_BLOCK);
  CHECK_FALSE(is_readable(engine));
}

TEST_CASE("256 calls are taken, the next finds no place, and each reply comes once and in order") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* const session = host.session();
  constexpr u64 kPlaces = 256;
  static char tags[kPlaces + 1];
  {
    const Held held(host.engine);
    for (u64 i = 0; i < kPlaces; ++i) {
      REQUIRE(tarn_submit_truncate(session, 0, &tags[i]) == TARN_OK);
    }
    CHECK(tarn_submit_truncate(session, 0, &tags[kPlaces]) == TARN_WOULD_BLOCK);
    CHECK(std::string(tarn_error_text()).find("256") != std::string::npos);
    CHECK_FALSE(is_readable(host.engine));
  }
  for (u64 i = 0; i < kPlaces; ++i) {
    const tarn_event reply = take_reply(host.engine);
    CHECK(reply.request == &tags[i]);
    CHECK(reply.session == session);
    // The place of a reply that was taken is free.
    if (i == 0) CHECK(tarn_submit_truncate(session, 0, &tags[kPlaces]) == TARN_OK);
  }
  CHECK(take_reply(host.engine).request == &tags[kPlaces]);
  CHECK_FALSE(is_readable(host.engine));
}

TEST_CASE("a submitted wait ends with the prefill, or with its time, and holds nothing back") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), "kv.context_tokens = 4096\nengine.batch_rows_max = 8\n");
  tarn_session* const session = host.session();
  const std::vector<u32> ids = test::random_ids(3, 2000);
  static char feed, soon, late, more;
  REQUIRE(tarn_submit_feed(session, ids.data(), ids.size(), &feed) == TARN_OK);
  REQUIRE(tarn_submit_wait(session, -1, &late) == TARN_OK);
  REQUIRE(tarn_submit_wait(session, 0, &soon) == TARN_OK);
  REQUIRE(tarn_submit_feed(session, ids.data(), 1, &more) == TARN_OK);
  std::vector<void*> order;
  for (u32 i = 0; i < 4; ++i) {
    const tarn_event reply = take_reply(host.engine);
    CHECK(reply.status == (reply.request == &soon ? TARN_WOULD_BLOCK : TARN_OK));
    order.push_back(reply.request);
  }
  CHECK(order.back() == &late);
  tarn_session_info info = TARN_INIT(tarn_session_info);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.n_computed == 2000);
}

}  // namespace
}  // namespace tarn::submit_test
