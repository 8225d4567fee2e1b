// Goal    texts are read on a thread of their own: a text waits for no step while there is room for
//         its ids, a step waits for no text, and no order of calls locks up.
// Method  the engine's thread is held in a call while others bring texts; the text thread is held
//         while calls with tokens come, a hook calls, or the engine is closed; an assertion fails
//         in a text. Texts until the ring of ids is full, in any order of sizes.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/instance.h"
#include "runtime/service/text_desk.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::text_thread_test {
namespace {

using service::Request;
using service::Service;
using service::TextDesk;
using test::Host;
using test::SmallModel;

struct Gate {
  std::atomic<bool> is_open{false};
  void open() { is_open.store(true); }
  void pass() const {
    while (!is_open.load()) std::this_thread::yield();
  }
};

api::Instance& instance_of(tarn_engine* engine) {
  return *reinterpret_cast<api::Instance*>(engine);
}

int32_t tokenize(tarn_engine* engine) {
  uint32_t ids[64];
  uint64_t n = 0;
  const int32_t status = tarn_tokenize(engine, "baker", 5, TARN_ADD_SPECIAL, ids, 64, &n);
  CHECK((n > 0) == (status == TARN_OK));
  return status;
}

TEST_CASE("text waits for no step") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  Gate held, done;
  std::thread busy([&] {
    static_cast<void>(instance_of(host.engine).service.call([&]() -> Result<void> {
      held.open();
      done.pass();
      return {};
    }));
  });
  held.pass();
  CHECK(tokenize(host.engine) == TARN_OK);
  char piece[64];
  uint64_t n = 0;
  CHECK(tarn_piece(host.engine, 5, piece, sizeof piece, &n) == TARN_OK);
  tarn_is_end(host.engine, 5);
  done.open();
  busy.join();
}

TEST_CASE("a text of any length is tokenized, and one that the context cannot hold is not fed") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  std::string text;
  while (text.size() < 1'000'000) text += "baker bread\n";
  uint64_t n = 0;
  CHECK(tarn_tokenize(host.engine, text.data(), text.size(), 0, nullptr, 0, &n) ==
        TARN_INVALID_REQUEST);
  std::vector<uint32_t> ids(n + 1);
  REQUIRE(tarn_tokenize(host.engine, text.data(), text.size(), 0, ids.data(), n, &n) == TARN_OK);
  CHECK(n + 1 == ids.size());
  tarn_session* session = host.session();
  for (const uint64_t n_bytes : {uint64_t{3000}, uint64_t{text.size()}, ~uint64_t{0}}) {
    CAPTURE(n_bytes);
    CHECK(tarn_session_feed_text(session, text.data(), n_bytes, 0) == TARN_INVALID_REQUEST);
    tarn_error why = TARN_INIT(tarn_error);
    REQUIRE(tarn_error_get(&why) == TARN_OK);
    CHECK(why.reason == TARN_REASON_CONTEXT_TOO_LONG);
    CHECK(why.figures[0].value > 512);
    CHECK(why.figures[1].value == 512);
  }
  CHECK(tarn_session_feed_text(session, text.data(), 100, 0) == TARN_OK);
}

// A call whose text stage waits for the gate.
Request held_text(Gate* began, Gate* may_end) {
  return {.on_text = [began, may_end](TextDesk&) -> Result<void> {
    began->open();
    may_end->pass();
    return {};
  }};
}

TEST_CASE(
    "one text after another; calls with tokens go on, and a close sends those home that wait") {
  const SmallModel model("llama", "f16");
  auto host = std::make_unique<Host>(model.path());
  tarn_engine* const engine = host->engine;
  tarn_session* const session = host->session();
  Gate began, may_end;
  std::atomic<bool> held_ended{false};
  std::thread holder([&] {
    Service& service = instance_of(engine).service;
    const Service::Visit visit(service);
    static_cast<void>(service.call(held_text(&began, &may_end)));
    held_ended = true;
  });
  began.pass();
  std::atomic<int32_t> waited{-1}, fed{-1};
  std::thread waiter([&] { waited.store(tokenize(engine)); });
  std::thread feeder([&] { fed.store(tarn_session_feed_text(session, "baker", 5, 0)); });
  // A call of another session passes the text by.
  CHECK(tarn_session_feed(host->session(), std::array<uint32_t, 1>{5}.data(), 1) == TARN_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(waited.load() == -1);
  CHECK(fed.load() == -1);
  std::thread closer([&] { host.reset(); });
  waiter.join();
  feeder.join();
  CHECK(waited.load() == TARN_CANCELLED);
  CHECK(fed.load() == TARN_CANCELLED);
  CHECK_FALSE(held_ended.load());  // its text is still in use
  may_end.open();
  holder.join();
  closer.join();
}

TEST_CASE("calls of one session keep their order, whichever of them has a text") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* const session = host.session();
  Gate began, may_end;
  std::thread holder([&] {
    static_cast<void>(instance_of(host.engine).service.call(held_text(&began, &may_end)));
  });
  began.pass();
  std::thread feeder([&] { CHECK(tarn_session_feed_text(session, "baker", 5, 0) == TARN_OK); });
  tarn_session_info info = TARN_INIT(tarn_session_info);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is queued by then
  std::atomic<bool> has_cut{false};
  std::thread cutter([&] {
    CHECK(tarn_session_truncate(session, 0) == TARN_OK);
    has_cut = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(has_cut.load());
  may_end.open();
  holder.join();
  feeder.join();
  cutter.join();
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.n_tokens == 0);
}

TEST_CASE("a hook is refused while a text is read") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  Service& service = instance_of(host.engine).service;
  Gate began, may_end;
  std::thread holder([&] { static_cast<void>(service.call(held_text(&began, &may_end))); });
  began.pass();
  int32_t in_hook = -1;
  const Result<void> done = service.call([&]() -> Result<void> {
    in_hook = tokenize(host.engine);
    return {};
  });
  CHECK(done.has_value());
  CHECK(in_hook == TARN_INVALID_REQUEST);
  may_end.open();
  holder.join();
  // The text thread's own callbacks are refused, too.
  const Result<void> in_text =
      service.call(Request{.on_text = [&in_hook, engine = host.engine](TextDesk&) -> Result<void> {
        in_hook = tokenize(engine);
        return {};
      }});
  CHECK(in_text.has_value());
  CHECK(in_hook == TARN_INVALID_REQUEST);
}

TEST_CASE("texts wait for the engine only where the ring of ids is full") {
  const SmallModel model("llama", "f16");
  // Room for 1024 ids.
  Host host(model.path(), "kv.context_tokens = 512\nengine.sessions_max = 8\n");
  constexpr u32 kSessions = 8;
  std::vector<tarn_session*> sessions;
  for (u32 i = 0; i < kSessions; ++i) sessions.push_back(host.session());
  Gate held, done;
  std::thread busy([&] {
    static_cast<void>(instance_of(host.engine).service.call([&]() -> Result<void> {
      held.open();
      done.pass();
      return {};
    }));
  });
  held.pass();
  const std::string text(120, 'z');  // more than 100 ids, room for 488 is asked for
  std::vector<std::thread> feeders;
  feeders.reserve(kSessions);
  for (tarn_session* session : sessions) {
    feeders.emplace_back([&text, session] {
      // All of them are more than the context: some are refused once it is full.
      const int32_t fed = tarn_session_feed_text(session, text.data(), text.size(), 0);
      CHECK((fed == TARN_OK || fed == TARN_WOULD_BLOCK));
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  done.open();
  busy.join();
  for (std::thread& feeder : feeders) feeder.join();
  CHECK(tokenize(host.engine) == TARN_OK);
}

TEST_CASE("a failed assertion in a text ends the work on texts, and neither engine nor host") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* const session = host.session();
  tarn_session* const other = host.session();
  Service& service = instance_of(host.engine).service;
  // Calls wait for their turn meanwhile, with a text and without.
  Gate held, done, began, may_fail;
  std::thread busy([&] {
    CHECK(service
              .call([&]() -> Result<void> {
                held.open();
                done.pass();
                return {};
              })
              .has_value());
  });
  held.pass();
  std::thread waiter([&] {
    CHECK(tarn_session_feed(session, std::array<uint32_t, 2>{5, 6}.data(), 2) == TARN_OK);
  });
  std::thread failing([&] {
    const Result<void> failed =
        service.call(Request{.on_text = [&began, &may_fail](TextDesk&) -> Result<void> {
          began.open();
          may_fail.pass();
          TARN_ASSERT(false);
          return {};
        }});
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().status == Status::internal);
  });
  began.pass();
  std::thread text([&] { CHECK(tokenize(host.engine) == TARN_INTERNAL); });
  std::thread feeder([&] { CHECK(tarn_session_feed_text(other, "baker", 5, 0) == TARN_INTERNAL); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  may_fail.open();
  failing.join();
  text.join();
  CHECK(host.n_fatal == 1);
  CHECK(tokenize(host.engine) == TARN_INTERNAL);
  CHECK(std::string(tarn_error_text()).find("no more texts") != std::string::npos);
  done.open();
  busy.join();
  waiter.join();
  feeder.join();
  CHECK_FALSE(service.is_dead());
  CHECK(tarn_session_wait(session, -1) == TARN_OK);
}

TEST_CASE("a caller's thread keeps its sink") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  const FatalSink mine{};
  const FatalSink* const before = set_thread_fatal_sink(&mine);
  CHECK(tokenize(host.engine) == TARN_OK);
  CHECK(set_thread_fatal_sink(before) == &mine);
}

}  // namespace
}  // namespace tarn::text_thread_test
