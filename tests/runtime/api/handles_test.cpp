// Goal    a call on an engine that is not this process' own is refused, and one without an engine:
//         at once, with a sentence, with zeros in what it gives out; and its process goes on.
// Method  every function of the headers that takes a handle, found in their text: with NULL, and in
//         children of fork(2) under an alarm, while the engine computes, between calls and from a
//         callback. Then the parent's session goes on, and its store is opened again.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/runtime/api/handle_calls.h"
#include "tests/runtime/api/host.h"
#include "tests/support/folders.h"
#include "tests/support/forked.h"
#include "tests/support/open_engine.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"

namespace tarn::handles_test {
namespace {

using test::HandleCall;
using test::Handles;
using test::Host;
using test::kHandleCalls;
using test::run;
using test::SmallModel;

constexpr unsigned kHangS = 10;  // a child that takes this long is killed, and reported as -1

std::string toml_of(const test::TempDir& folder) {
  return "kv.context_tokens = 2048\nengine.batch_rows_max = 8\nstore.path = '" + folder.path() +
         "'\nstore.quota_bytes = '64MiB'\nstore.sessions = true\n";
}

void feed(tarn_session* session, u32 n) {
  const std::vector<u32> ids = test::random_ids(n, n);
  REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
}

// What `fn` returns in a child that an alarm ends where a call hangs.
template <class Fn>
int in_timed_child(Fn&& fn) {
  return test::in_child([&fn] {
    alarm(kHangS);
    return fn();
  });
}

bool names_the_fork() { return std::strstr(tarn_error_text(), "fork(2)") != nullptr; }

TEST_CASE("the table of calls has every function that takes a handle") {
  std::stringstream text;
  for (const char* name :
       {"/runtime/api/tarn.h", "/runtime/api/tarn_chat.h", "/runtime/api/tarn_chunks.h",
        "/runtime/api/tarn_explain.h", "/runtime/api/tarn_store.h"}) {
    text << std::ifstream(test::source_folder() + name).rdbuf();
  }
  const std::string header = text.str();
  const std::regex declared(R"(TARN_API [\w ]+?\**(\w+)\(tarn_(?:engine|session)\* \w+)");
  std::set<std::string> want, got;
  for (auto i = std::sregex_iterator(header.begin(), header.end(), declared);
       i != std::sregex_iterator(); ++i) {
    want.insert((*i)[1].str());
  }
  for (const HandleCall& call : kHandleCalls) got.insert(call.name);
  CHECK(want.size() > 20);
  CHECK(want == got);
}

TEST_CASE("without a handle every call is refused, and gives out zeros") {
  const Handles none{.path = "/nowhere", .why = "is NULL"};
  for (const HandleCall& call : kHandleCalls) {
    CAPTURE(std::string(call.name));
    CHECK(call.is_refused(none));
  }
  auto plan = test::filled<tarn_plan>();
  CHECK(tarn_plan_memory(nullptr, &plan) == TARN_INVALID_REQUEST);
  CHECK(test::is_zeroed(plan));
}

TEST_CASE("in a child of fork every call is refused at once, and the parent goes on") {
  const SmallModel model("llama", "q8_0");
  const test::TempDir folder("handles_test");
  const test::TempFile file("handles_test.session");
  std::filesystem::remove(file.path());
  std::vector<u32> want;
  {
    Host alone(model.path(), "kv.context_tokens = 2048\nengine.batch_rows_max = 8\n");
    tarn_session* session = alone.session();
    feed(session, 1500);
    want = run(session, 20).tokens;
  }
  Host host(model.path(), toml_of(folder).c_str());
  const Handles handles{host.engine, host.session(), file.path(), "fork(2)"};
  REQUIRE(tarn_session_keep(handles.session, "kept") == TARN_OK);
  // The engine computes all the while, and another thread's calls take and leave its lock.
  feed(handles.session, 1500);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    tarn_session_info info = TARN_INIT(tarn_session_info);
    while (!is_over.load()) tarn_session_info_get(handles.session, &info);
  });
  for (const HandleCall& call : kHandleCalls) {
    CAPTURE(std::string(call.name));
    CHECK(in_timed_child([&] { return call.is_refused(handles) ? 0 : 1; }) == 0);
  }
  const int n_taken = in_timed_child([&] {  // behind a tarn_close, too
    return static_cast<int>(std::ranges::count_if(
        kHandleCalls, [&](const HandleCall& call) { return !call.is_refused(handles); }));
  });
  CHECK(n_taken == 0);
  is_over = true;
  other.join();
  CHECK(run(handles.session, 20).tokens == want);
  CHECK_FALSE(std::filesystem::exists(file.path()));
}

struct Forked {
  bool is_child = false;
  int child_ended = -1;
};

// The child's way leads out of the callback, through tarn_session_run, to where the test ends it.
int32_t fork_once(void* context, const tarn_event* event) {
  auto& forked = *static_cast<Forked*>(context);
  if (event->type != TARN_EVENT_TOKEN || forked.child_ended != -1) return 0;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangS);
    forked.is_child = true;
    return 0;
  }
  int status = 0;
  const bool has_ended = waitpid(child, &status, 0) == child && WIFEXITED(status);
  forked.child_ended = has_ended ? WEXITSTATUS(status) : 255;
  return 0;
}

TEST_CASE("a child that returns from the callback of a run is refused there") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = 5;
  options.ignore_end = 1;
  Forked forked;
  const int32_t status = tarn_session_run(session, &options, &fork_once, &forked);
  if (forked.is_child) _exit(status == TARN_INVALID_REQUEST && names_the_fork() ? 0 : 1);
  CHECK(status == TARN_OK);
  CHECK(forked.child_ended == 0);
}

TEST_CASE("while a child lives, the parent closes its engine and opens the store again") {
  const SmallModel model("llama", "f16");
  const test::TempDir folder("handles_test_again");
  int says_end[2];
  REQUIRE(pipe(says_end) == 0);
  pid_t child = -1;
  {
    Host host(model.path(), toml_of(folder).c_str());
    child = fork();
    if (child == 0) {
      alarm(kHangS);
      tarn_close(host.engine);
      close(says_end[1]);
      char byte;
      _exit(read(says_end[0], &byte, 1) == 0 ? 0 : 1);  // until the parent is done
    }
    REQUIRE(child > 0);
  }
  {
    Host again(model.path(), toml_of(folder).c_str());
    tarn_engine_status status = TARN_INIT(tarn_engine_status);
    REQUIRE(tarn_engine_status_get(again.engine, &status) == TARN_OK);
    CHECK(std::string(status.store) == "on");
  }
  close(says_end[0]);
  close(says_end[1]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a child opens an engine of its own" * doctest::skip(test::kSlowBuild)) {
  const SmallModel model("llama", "f16");  // ThreadSanitizer ends a child that starts a thread
  Host host(model.path());
  tarn_session* session = host.session();
  feed(session, 10);
  const std::vector<u32> want = run(session, 5).tokens;
  const int ended = in_timed_child([&] {
    tarn_options options = TARN_INIT(tarn_options);
    options.model_path = model.path().c_str();
    options.budget_bytes = u64{1} << 30;
    tarn_engine* engine = nullptr;
    tarn_session* own = nullptr;
    if (tarn_open(&options, &engine) != TARN_OK) return 1;
    if (tarn_session_create(engine, nullptr, &own) != TARN_OK) return 2;
    const std::vector<u32> ids = test::random_ids(10, 10);
    if (tarn_session_feed(own, ids.data(), ids.size()) != TARN_OK) return 3;
    tarn_generate_options generate = TARN_INIT(tarn_generate_options);
    generate.max_tokens = 5;
    generate.ignore_end = 1;
    std::vector<u32> got;
    const auto note = [](void* tokens, const tarn_event* event) -> int32_t {
      if (event->type == TARN_EVENT_TOKEN) {
        static_cast<std::vector<u32>*>(tokens)->push_back(event->token);
      }
      return 0;
    };
    if (tarn_session_run(own, &generate, note, &got) != TARN_OK) return 4;
    tarn_close(engine);
    return got == want ? 0 : 5;
  });
  CHECK(ended == 0);
}

}  // namespace
}  // namespace tarn::handles_test
