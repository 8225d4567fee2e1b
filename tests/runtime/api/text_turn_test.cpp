// Goal    texts are tokenized on the caller's thread: nobody waits for a step, a step waits for
//         nobody, and no order of calls locks up.
// Method  the engine's thread is held in a command while another thread tokenizes; a turn is held
//         while other callers come, a hook calls, the engine is closed, or its holder's assertion
//         fails.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/instance.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn {
namespace {

using engine::EngineThread;
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
    static_cast<void>(instance_of(host.engine).thread.call([&]() -> Result<void> {
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
    CHECK(std::string(tarn_error_text()).find("raise -c") != std::string::npos);
  }
  CHECK(tarn_session_feed_text(session, text.data(), 100, 0) == TARN_OK);
}

TEST_CASE("callers take turns, and one that waits is sent home by a close") {
  const SmallModel model("llama", "f16");
  auto host = std::make_unique<Host>(model.path());
  tarn_engine* const engine = host->engine;
  Gate has_turn, may_end;
  std::thread holder([&] {
    const EngineThread::Visit visit(instance_of(engine).thread);
    const EngineThread::TextTurn turn(instance_of(engine).thread);
    REQUIRE(turn.begun());
    has_turn.open();
    may_end.pass();
  });
  has_turn.pass();
  std::atomic<int32_t> waited{-1};
  std::thread waiter([&] { waited.store(tokenize(engine)); });
  // The engine's thread waits for no turn.
  CHECK(tarn_session_feed(host->session(), std::array<uint32_t, 1>{5}.data(), 1) == TARN_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(waited.load() == -1);
  std::thread closer([&] { host.reset(); });
  waiter.join();
  CHECK(waited.load() == TARN_CANCELLED);
  may_end.open();
  holder.join();
  closer.join();
}

TEST_CASE("a hook is refused while a caller with a turn waits for the engine's thread") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  EngineThread& thread = instance_of(host.engine).thread;
  const EngineThread::Visit visit(thread);
  const EngineThread::TextTurn turn(thread);
  REQUIRE(turn.begun());
  int32_t in_hook = -1;
  const Result<void> done = thread.call([&]() -> Result<void> {
    in_hook = tokenize(host.engine);
    return {};
  });
  CHECK(done.has_value());
  CHECK(in_hook == TARN_INVALID_REQUEST);
}

TEST_CASE("a failed assertion in a text ends the work on texts, and neither engine nor host") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* const session = host.session();
  EngineThread& thread = instance_of(host.engine).thread;
  // A command waits for its turn meanwhile.
  Gate held, done;
  std::thread busy([&] {
    CHECK(thread
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
  {
    const EngineThread::Visit visit(thread);
    EngineThread::TextTurn turn(thread);
    REQUIRE(turn.begun());
    const Result<void> failed = turn.run([]() -> Result<void> {
      TARN_ASSERT(false);
      return {};
    });
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().status == Status::internal);
  }
  CHECK(host.n_fatal == 1);
  CHECK(tokenize(host.engine) == TARN_INTERNAL);
  done.open();
  busy.join();
  waiter.join();
  CHECK_FALSE(thread.dead());
  CHECK(tarn_session_wait(session, -1) == TARN_OK);
}

TEST_CASE("a thread keeps the sink that it had before its turn") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  const FatalSink mine{};
  const FatalSink* const before = set_thread_fatal_sink(&mine);
  CHECK(tokenize(host.engine) == TARN_OK);
  CHECK(set_thread_fatal_sink(before) == &mine);
}

}  // namespace
}  // namespace tarn
