// Goal    one descriptor tells of all that an engine has to say: it is readable while a take gives
//         something; each event and each reply comes once, whichever thread takes; a dead or lost
//         engine says so when all is taken. (No session hides another, nothing comes of a destroyed
//         one: many_callers.)
// Method  poll(2) before and after each take, over sessions that answer side by side; takers on
//         several threads beside a reader of one session; engines that die, or lose their GPU, with
//         calls in flight.
#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/instance.h"
#include "tests/runtime/api/event_loop.h"
#include "tests/runtime/api/held_engine.h"
#include "tests/runtime/api/host.h"
#include "tests/support/fake_device.h"
#include "tests/support/forked.h"
#include "tests/support/open_engine.h"
#include "tests/support/slow_build.h"

namespace tarn::take_test {
namespace {

using test::Host;
using test::is_readable;
using test::SmallModel;
using test::take_next;
using test::take_reply;

constexpr const char* kManySessions = "kv.context_tokens = 1024\nengine.sessions_max = 8\n";

tarn_generate_options greedy(u32 n_tokens) {
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = n_tokens;
  options.ignore_end = 1;
  return options;
}

tarn_session* session_of(tarn_engine* engine, void* user) {
  tarn_session_options options = TARN_INIT(tarn_session_options);
  options.user = user;
  tarn_session* session = nullptr;
  REQUIRE(tarn_session_create(engine, &options, &session) == TARN_OK);
  return session;
}

std::vector<u32> alone(const SmallModel& model, const std::vector<u32>& ids, u32 n_tokens) {
  Host host(model.path());
  tarn_session* session = host.session();
  REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
  return test::run(session, n_tokens).tokens;
}

TEST_CASE("the descriptor is readable exactly while a take gives something") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), kManySessions);
  tarn_engine* const engine = host.engine;
  constexpr u32 kSessions = 5, kTokens = 20;
  int users[kSessions];
  std::map<void*, std::vector<u32>> said;
  std::map<void*, u32> n_done;
  std::vector<std::vector<u32>> ids, want;
  std::vector<tarn_session*> sessions;
  const tarn_generate_options options = greedy(kTokens);
  CHECK_FALSE(is_readable(engine));
  for (u32 i = 0; i < kSessions; ++i) {
    ids.push_back(test::random_ids(i, 10 + i));
    want.push_back(alone(model, ids[i], kTokens));
    sessions.push_back(session_of(engine, &users[i]));
    REQUIRE(tarn_submit_feed(sessions[i], ids[i].data(), ids[i].size(), &ids) == TARN_OK);
    REQUIRE(tarn_submit_generate(sessions[i], &options, &want) == TARN_OK);
  }
  u32 n_replies = 0;
  while (n_done.size() < kSessions) {
    tarn_event event;
    REQUIRE(take_next(engine, &event) == TARN_OK);
    const u64 idx = static_cast<u64>(static_cast<int*>(event.user) - users);
    REQUIRE(idx < kSessions);
    CHECK(event.session == sessions[idx]);
    if (event.type == TARN_EVENT_REPLY) {
      ++n_replies;
      CHECK(event.status == TARN_OK);
      CHECK(n_done[event.user] == 0);
      n_done.erase(event.user);
      continue;
    }
    CHECK(event.request == nullptr);
    if (event.type == TARN_EVENT_TOKEN) said[event.user].push_back(event.token);
    if (event.type == TARN_EVENT_DONE) ++n_done[event.user];
  }
  CHECK(n_replies == 2 * kSessions);
  for (u32 i = 0; i < kSessions; ++i) {
    CAPTURE(i);
    CHECK(n_done[&users[i]] == 1);
    CHECK(said[&users[i]] == want[i]);
  }
  tarn_event event = TARN_INIT(tarn_event);
  CHECK(tarn_engine_take(engine, &event) == TARN_WOULD_BLOCK);
  CHECK_FALSE(is_readable(engine));
  // One event at a time: what is left is told before each take, and its end after the last.
  REQUIRE(tarn_session_generate(sessions[0], &options) == TARN_OK);
  tarn_session_info info = TARN_INIT(tarn_session_info);
  do {
    REQUIRE(tarn_session_info_get(sessions[0], &info) == TARN_OK);
  } while (info.generating != 0);
  u32 n_taken = 0;
  while (is_readable(engine)) {
    event = TARN_INIT(tarn_event);
    REQUIRE(tarn_engine_take(engine, &event) == TARN_OK);
    ++n_taken;
  }
  CHECK(n_taken > kTokens);
  CHECK(event.type == TARN_EVENT_DONE);
  CHECK(tarn_engine_take(engine, &event) == TARN_WOULD_BLOCK);
  // Whoever reads one session alone takes from it, too.
  REQUIRE(tarn_session_generate(sessions[0], &options) == TARN_OK);
  CHECK(is_readable(engine, test::kLoopMs));
  do {
    REQUIRE(tarn_session_poll(sessions[0], -1, &event) == TARN_OK);
  } while (event.type != TARN_EVENT_DONE);
  CHECK(event.user == &users[0]);
  CHECK_FALSE(is_readable(engine));
}

TEST_CASE("several threads submit and take, one polls: nothing is lost, nothing comes twice") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), kManySessions);
  tarn_engine* const engine = host.engine;
  constexpr u32 kSessions = 6, kTokens = 12;
  constexpr u32 kRounds = test::kSlowBuild ? 4 : 20;
  const tarn_generate_options options = greedy(kTokens);
  const std::vector<u32> ids = test::random_ids(1, 8);
  const std::vector<u32> want = alone(model, ids, kTokens);
  struct Talk {
    std::atomic<u32> n_replies{0}, n_done{0}, n_tokens{0}, n_bad{0};
  };
  std::vector<Talk> talks(kSessions + 1);
  const auto count = [&](const tarn_event& event) {
    auto& talk = *static_cast<Talk*>(event.user);
    if (event.type == TARN_EVENT_REPLY) {
      ++talk.n_replies;
      talk.n_bad += event.status != TARN_OK;
    }
    if (event.type == TARN_EVENT_TOKEN) ++talk.n_tokens;
    if (event.type == TARN_EVENT_DONE) ++talk.n_done;
  };
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (u32 t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!is_over.load()) {
        tarn_event event = TARN_INIT(tarn_event);
        if (!is_readable(engine, 10)) continue;
        if (tarn_engine_take(engine, &event) == TARN_OK) count(event);
      }
    });
  }
  std::vector<std::thread> askers;
  for (u32 i = 0; i <= kSessions; ++i) {
    askers.emplace_back([&, i] {
      tarn_session* const session = session_of(engine, &talks[i]);
      for (u32 round = 0; round < kRounds; ++round) {
        const bool is_fed = tarn_submit_truncate(session, 0, nullptr) == TARN_OK &&
                            tarn_submit_feed(session, ids.data(), ids.size(), nullptr) == TARN_OK &&
                            tarn_submit_generate(session, &options, nullptr) == TARN_OK;
        talks[i].n_bad += !is_fed;
        while (talks[i].n_done.load() == round) {
          tarn_event event = TARN_INIT(tarn_event);
          if (i > 0) {
            std::this_thread::yield();
          } else if (tarn_session_poll(session, 1, &event) == TARN_OK) {
            count(event);  // beside the takers
          }
        }
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  const auto have_replies = [&] {
    for (const Talk& talk : talks) {
      if (talk.n_replies.load() < 3 * kRounds) return false;
    }
    return true;
  };
  while (!have_replies()) std::this_thread::yield();
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  for (const Talk& talk : talks) {
    CHECK(talk.n_bad == 0);
    CHECK(talk.n_replies == 3 * kRounds);
    CHECK(talk.n_done == kRounds);
    CHECK(talk.n_tokens == kRounds * kTokens);
  }
}

TEST_CASE("a dead engine answers what was submitted, then says so for ever") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), "kv.context_tokens = 512\ncpu.threads = 1\n");
  tarn_engine* const engine = host.engine;
  tarn_session* const session = host.session();
  auto& service = reinterpret_cast<api::Instance*>(engine)->service;
  CHECK_FALSE(is_readable(engine));
  std::atomic<bool> is_held{false}, may_die{false};
  std::thread dying([&] {
    const Result<void> died = service.call([&]() -> Result<void> {
      is_held = true;
      while (!may_die.load()) std::this_thread::yield();
      TARN_ASSERT(false);
      return {};
    });
    CHECK_FALSE(died.has_value());
  });
  while (!is_held.load()) std::this_thread::yield();
  static char tags[3];
  const u32 id = 5;
  REQUIRE(tarn_submit_feed(session, &id, 1, &tags[0]) == TARN_OK);
  REQUIRE(tarn_submit_feed_text(session, "baker", 5, 0, &tags[1]) == TARN_OK);
  REQUIRE(tarn_submit_wait(session, -1, &tags[2]) == TARN_OK);
  may_die = true;
  tarn_event event;
  std::set<void*> replies;
  int32_t status = TARN_WOULD_BLOCK;
  while ((status = take_next(engine, &event)) == TARN_OK) {
    CHECK(event.type == TARN_EVENT_REPLY);
    CHECK(event.status == TARN_INTERNAL);
    replies.insert(event.request);
  }
  CHECK(status == TARN_INTERNAL);
  CHECK(replies == std::set<void*>{&tags[0], &tags[1], &tags[2]});
  CHECK(is_readable(engine));
  CHECK(tarn_engine_take(engine, &event) == TARN_INTERNAL);
  CHECK(tarn_submit_feed(session, &id, 1, nullptr) == TARN_INTERNAL);
  dying.join();
}

TEST_CASE("a lost GPU answers what was submitted; what was said is taken first") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kTokens = 6;
  // The prefill may be one step with the first token, or one of its own: then there is a call more.
  for (u64 call = 2; call <= 1 + 2 * kTokens; ++call) {
    CAPTURE(call);
    test::FakeDevice device;
    device.fail_at({.call = call, .code = kGpuIllegalAddress});
    tarn_options options = TARN_INIT(tarn_options);
    options.model_path = model.path().c_str();
    options.config_toml = "kv.context_tokens = 256\ncpu.threads = 1\n";
    options.budget_bytes = kGiB;
    const Result<api::Instance*> opened = api::Instance::open(options, {.device = &device});
    REQUIRE(opened.has_value());
    auto* const engine = reinterpret_cast<tarn_engine*>(*opened);
    tarn_session* session = nullptr;
    REQUIRE(tarn_session_create(engine, nullptr, &session) == TARN_OK);
    const std::vector<u32> ids = test::random_ids(7, 20);
    const tarn_generate_options generate = greedy(kTokens);
    static char tags[4];
    u64 n_asked = 0;
    int32_t status = TARN_OK;
    for (const int32_t submitted : {tarn_submit_feed(session, ids.data(), ids.size(), &tags[0]),
                                    tarn_submit_wait(session, -1, &tags[1]),
                                    tarn_submit_generate(session, &generate, &tags[2])}) {
      CHECK((submitted == TARN_OK || submitted == TARN_DEVICE_LOST));  // it may be lost by then
      n_asked += submitted == TARN_OK;
    }
    tarn_event event;
    std::set<void*> replies;
    while ((status = take_next(engine, &event)) == TARN_OK) {
      if (event.type != TARN_EVENT_REPLY) continue;
      CHECK((event.status == TARN_OK || event.status == TARN_DEVICE_LOST));
      replies.insert(event.request);
    }
    CHECK(status == TARN_DEVICE_LOST);
    CHECK(replies.size() == n_asked);
    CHECK(is_readable(engine));
    CHECK(tarn_submit_feed(session, ids.data(), 1, nullptr) == TARN_DEVICE_LOST);
    tarn_close(engine);
    CHECK(device.leaks().empty());
  }
}

TEST_CASE("a wait for a prefill that a lost GPU does not end is answered") {
  const SmallModel model("llama", "q8_0");
  test::FakeDevice device;
  device.fail_at({.call = 2, .code = kGpuIllegalAddress});
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.config_toml = "kv.context_tokens = 256\ncpu.threads = 1\n";
  options.budget_bytes = kGiB;
  const Result<api::Instance*> opened = api::Instance::open(options, {.device = &device});
  REQUIRE(opened.has_value());
  auto* const engine = reinterpret_cast<tarn_engine*>(*opened);
  tarn_session* session = nullptr;
  REQUIRE(tarn_session_create(engine, nullptr, &session) == TARN_OK);
  static char wait;
  {
    const test::Held held(engine);  // both are there before the prefill begins
    REQUIRE(tarn_submit_feed_text(session, "bakeri somu", 11, 0, nullptr) == TARN_OK);
    REQUIRE(tarn_submit_wait(session, -1, &wait) == TARN_OK);
  }
  tarn_event reply = take_reply(engine);
  CHECK(reply.status == TARN_OK);
  reply = take_reply(engine);
  CHECK(reply.request == &wait);
  CHECK(reply.status == TARN_DEVICE_LOST);
  CHECK(tarn_engine_take(engine, &reply) == TARN_DEVICE_LOST);
  tarn_close(engine);
}

TEST_CASE("a broken text thread answers what was submitted, and the engine goes on") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_engine* const engine = host.engine;
  tarn_session* const session = host.session();
  auto& service = reinterpret_cast<api::Instance*>(engine)->service;
  static char tags[3];
  const u32 id = 5;
  u64 n = 0;
  std::atomic<bool> is_held{false}, may_fail{false};
  std::thread failing([&] {
    const Result<void> failed = service.call(
        service::Request{.on_text = [&is_held, &may_fail](service::TextDesk&) -> Result<void> {
          is_held = true;
          while (!may_fail.load()) std::this_thread::yield();
          TARN_ASSERT(false);
          return {};
        }});
    CHECK_FALSE(failed.has_value());
  });
  while (!is_held.load()) std::this_thread::yield();
  REQUIRE(tarn_submit_tokenize(engine, "baker", 5, 0, nullptr, 0, &n, &tags[0]) == TARN_OK);
  REQUIRE(tarn_submit_feed_text(session, "baker", 5, 0, &tags[1]) == TARN_OK);
  REQUIRE(tarn_submit_feed(session, &id, 1, &tags[2]) == TARN_OK);
  may_fail = true;
  failing.join();
  for (const auto& [tag, status] : {std::pair{&tags[0], TARN_INTERNAL},
                                    {&tags[1], TARN_INTERNAL},
                                    {&tags[2], TARN_CANCELLED}}) {  // it stood behind the text
    const tarn_event reply = take_reply(engine);
    CHECK(reply.request == tag);
    CHECK(reply.status == status);
  }
  CHECK(tarn_submit_feed_text(session, "baker", 5, 0, nullptr) == TARN_INTERNAL);
  CHECK(host.n_fatal == 1);
  REQUIRE(tarn_session_feed(session, &id, 1) == TARN_OK);
  CHECK(test::run(session, 3).tokens.size() == 3);
}

TEST_CASE("an end by its deadline has names") {
  CHECK(std::string(tarn_finish_name(TARN_FINISH_DEADLINE)) == "deadline");
}

TEST_CASE("sessions are listed as of the last step, with whose they are") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  int user = 0;
  tarn_session_options options = TARN_INIT(tarn_session_options);
  options.user = &user;
  options.priority = TARN_BACKGROUND;
  tarn_session *first = nullptr, *second = nullptr;
  REQUIRE(tarn_session_create(host.engine, &options, &first) == TARN_OK);
  REQUIRE(tarn_session_create(host.engine, nullptr, &second) == TARN_OK);
  const std::vector<u32> ids = test::random_ids(1, 30);
  REQUIRE(tarn_session_feed(second, ids.data(), ids.size()) == TARN_OK);
  REQUIRE(tarn_session_wait(second, -1) == TARN_OK);
  tarn_session_row rows[3] = {TARN_INIT(tarn_session_row)};
  u64 n = 0;
  REQUIRE(tarn_session_list(host.engine, rows, 3, &n) == TARN_OK);
  REQUIRE(n == 2);
  CHECK(rows[0].session == first);
  CHECK(rows[0].user == &user);
  CHECK(rows[0].priority == TARN_BACKGROUND);
  CHECK(rows[0].state == TARN_SESSION_IDLE);
  CHECK(rows[0].n_tokens == 0);
  CHECK(rows[1].session == second);
  CHECK(rows[1].user == nullptr);
  CHECK(rows[1].priority == TARN_INTERACTIVE);
  CHECK(rows[1].n_tokens == 30);
  CHECK(rows[1].n_computed == 29);
  CHECK(rows[1].struct_size == sizeof rows[1]);
  // A short list says how many there are.
  n = 0;
  CHECK(tarn_session_list(host.engine, nullptr, 0, &n) == TARN_OK);
  CHECK(n == 2);
  rows[0].struct_size = 2;
  CHECK(tarn_session_list(host.engine, rows, 1, &n) == TARN_INVALID_REQUEST);
  tarn_session_destroy(first);
  rows[0].struct_size = sizeof rows[0];
  REQUIRE(tarn_session_list(host.engine, rows, 3, &n) == TARN_OK);
  CHECK(n == 1);
  CHECK(rows[0].session == second);
}

}  // namespace
}  // namespace tarn::take_test
