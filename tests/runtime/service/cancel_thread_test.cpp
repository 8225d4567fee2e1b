// Goal    who waits for a session's events, or for what it computes, has the end of a cancelled one
//         while the step still goes on for another's rows; a call on it that follows at once has
//         its turn behind the step; the other's bits, and its own later ones, are undisturbed.
// Method  an engine on its thread. Who is shown K and V stops it in a step's first layer until the
//         cancel is asked for, and in the last one until its end has been read; a deadline that
//         nobody reaches ends a wait that would be for ever. Then cancels at any moment.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/lab/probe.h"
#include "runtime/service/service.h"
#include "tests/support/open_engine.h"
#include "tests/support/slow_build.h"

namespace tarn::service::cancel_thread_test {
namespace {

using engine::DoneEvent;
using engine::EventRing;
using engine::EventType;
using engine::Finish;
using engine::GenerateParams;
using engine::SessionState;

using test::OpenEngine;
using test::SmallModel;

constexpr u64 kDeadlineNs = 60'000'000'000;

void wait_for(const std::atomic<bool>& flag) {
  SystemClock clock;
  const u64 end_ns = clock.now_ns() + kDeadlineNs;
  while (!flag.load() && clock.now_ns() < end_ns) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  CHECK(flag.load());
}

// Stops the first step that has rows of two sessions.
struct Gate {
  static void on_rows(void* context, const step::KvRows& rows) {
    auto& self = *static_cast<Gate*>(context);
    if (rows.cache_layer == 0) {
      if (++self.n_first != 2) return;  // the second run's
      self.is_in_step.store(true);
      wait_for(self.is_cancelled);
    } else if (self.is_in_step.load()) {
      wait_for(self.is_read);
    }
  }
  u32 n_first = 0;
  std::atomic<bool> is_in_step{false}, is_cancelled{false}, is_read{false};
};

Config config_of() {
  Config config = test::small_config();
  config.batch_rows_max = 64;
  config.n_threads = 2;
  config.context_tokens = 1024;
  return config;
}

struct Answer {
  std::vector<u32> tokens;
  DoneEvent done{};
};

Answer read(Service& service, SessionIdx session) {
  Answer answer;
  std::array<char, 256> text{};
  for (;;) {
    Service::Taken taken;
    REQUIRE(service.next_event(session, -1, &taken, text).has_value());
    const engine::Event& event = taken.event;
    if (event.type == EventType::token) answer.tokens.push_back(event.token.token);
    if (event.type != EventType::done) continue;
    answer.done = event.done;
    return answer;
  }
}

Result<void> wait_computed(Service& service, SessionIdx session) {
  return service.call(Request{.session = session, .waits = true});
}

GenerateParams tokens(u32 n) { return {.max_tokens = n, .ignore_end = true}; }

// On the engine's thread.
Result<void> generate(Service& service, Engine& engine, SessionIdx session, u32 n) {
  TARN_CHECK(engine.sessions().generate(session, tokens(n)));
  service.begin_reading(session);
  return {};
}

std::vector<u32> alone(const std::string& path, const std::vector<u32>& ids, u32 n) {
  OpenEngine open(path, config_of());
  const SessionIdx session = open.session_with(ids);
  REQUIRE(open.engine.sessions().generate(session, tokens(n)).has_value());
  return test::read_all(open.engine, session).tokens;
}

TEST_CASE("the end of a cancelled one is there before that of the step, and calls wait for it") {
  const SmallModel model("llama", "q4_k");
  const std::vector<u32> ids = test::random_ids(1, 40), other_ids = test::random_ids(2, 20);
  const std::vector<u32> want = alone(model.path(), ids, 12);
  const std::vector<u32> want_other = alone(model.path(), other_ids, 30);
  for (const bool generates : {true, false}) {
    CAPTURE(generates);
    OpenEngine open(model.path(), config_of());
    Engine& engine = open.engine;
    Gate gate;
    lab::Probe(engine).watch_kv({&Gate::on_rows, &gate});
    Service service;
    REQUIRE(service.start(&engine, {}).has_value());
    SessionIdx session = 0, other = 0;
    const Result<void> begun = service.call([&]() -> Result<void> {
      session = open.session_with(ids);
      other = open.session_with(other_ids);
      TARN_CHECK(generate(service, engine, other, 30));
      return generates ? generate(service, engine, session, 12) : Result<void>();
    });
    REQUIRE(begun.has_value());
    wait_for(gate.is_in_step);
    REQUIRE(service.request_cancel(session).has_value());
    gate.is_cancelled.store(true);
    if (generates) {
      const Answer answer = read(service, session);
      CHECK(answer.done.finish == Finish::cancelled);
      CHECK(answer.tokens.empty());
    } else {
      CHECK(wait_computed(service, session).has_value());
    }
    const auto progress = service.progress(session);
    REQUIRE(progress.has_value());
    CHECK(progress->state == SessionState::idle);
    CHECK(progress->n_ids == 0);
    CHECK_FALSE(gate.is_read.load());  // the step is still held
    // A call at once, which the step is let go for.
    std::atomic<bool> was_free{false};
    std::thread caller([&] {
      const Result<void> fed = service.call([&]() -> Result<void> {
        was_free.store(gate.is_read.load());
        TARN_CHECK(engine.sessions().feed(session, ids));
        return generate(service, engine, session, 12);
      });
      CHECK(fed.has_value());
    });
    gate.is_read.store(true);
    caller.join();
    CHECK(was_free.load());
    CHECK(read(service, session).tokens == want);
    CHECK(read(service, other).tokens == want_other);
    CHECK(service.stop());
  }
}

// Nobody reads before the cancel, so that no answer comes to its end before it.
TEST_CASE("cancelled at any moment, a session starts again as if nothing had been") {
  const SmallModel model("llama", "q4_k");
  constexpr u32 kOther = test::kSlowBuild ? 60 : 200;
  const std::vector<u32> ids = test::random_ids(1, 150), other_ids = test::random_ids(2, 20);
  const std::vector<u32> want = alone(model.path(), ids, EventRing::kEvents);
  const std::vector<u32> want_other = alone(model.path(), other_ids, kOther);
  OpenEngine open(model.path(), config_of());
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with({}), other = open.session_with(other_ids);
  Service service;
  REQUIRE(service.start(&engine, {}).has_value());
  REQUIRE(service.call([&] { return generate(service, engine, other, kOther); }).has_value());
  Answer others;
  std::thread reader([&] { others = read(service, other); });
  for (u32 round = 0; round < (test::kSlowBuild ? 3u : 12u); ++round) {
    CAPTURE(round);
    const auto begun = service.call([&]() -> Result<void> {
      TARN_CHECK(engine.sessions().truncate(session, 0));
      TARN_CHECK(engine.sessions().feed(session, ids));
      return generate(service, engine, session, 0);
    });
    REQUIRE(begun.has_value());
    std::this_thread::sleep_for(std::chrono::microseconds(500) * round);
    REQUIRE(service.request_cancel(session).has_value());
    const Answer answer = read(service, session);
    CHECK(answer.done.finish == Finish::cancelled);
    REQUIRE(answer.tokens.size() <= want.size());
    CHECK(std::equal(answer.tokens.begin(), answer.tokens.end(), want.begin()));
  }
  reader.join();
  CHECK(others.tokens == want_other);
  CHECK(service.stop());
}

}  // namespace
}  // namespace tarn::service::cancel_thread_test
