// Goal    more sessions than there is KV for: the end says how long each waited, interactive ones
//         go first, and what can never be served is told so. (Each says what it says alone:
//         sim/reuse_random, many_callers; floods: sim/callers.)
// Method  small models whose KV holds one or two of several sessions; answers compared with those
//         of an engine that has the sessions one after another.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"

namespace tarn::engine::admission_test {
namespace {

using step::Priority;
using test::OpenEngine;
using test::random_ids;
using test::SmallModel;

constexpr u32 kPage = 16;
constexpr u64 kSecond = 1'000'000'000;

Config config_of(u32 n_tokens, u32 n_sessions, u32 running_max = 16) {
  Config config = test::small_config();
  config.page_tokens = kPage;
  config.context_tokens = n_tokens;
  config.sessions_max = n_sessions;
  config.running_max = running_max;
  config.batch_rows_max = 64;
  return config;
}

// Returns an answer of n tokens behind these ids, from an engine of its own.
std::vector<u32> alone(const SmallModel& model, const std::vector<u32>& ids, u32 n) {
  OpenEngine open(model.path(), config_of(1024, 1));
  const SessionIdx session = open.session_with(ids);
  REQUIRE(
      open.engine.sessions().generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
  return test::read_all(open.engine, session).tokens;
}

void generate(Engine& engine, SessionIdx session, u32 n) {
  REQUIRE(engine.sessions().generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
}

// Reads all sessions' events by turns, while the engine steps.
std::vector<std::vector<u32>> read_together(Engine& engine, std::span<const SessionIdx> sessions) {
  std::vector<std::vector<u32>> tokens(sessions.size());
  u64 n_ended = 0;
  while (n_ended < sessions.size()) {
    for (u64 i = 0; i < sessions.size(); ++i) {
      Event event;
      char text[256];
      while (engine.sessions().take_event(sessions[i], &event, text)) {
        if (event.type == EventType::token) tokens[i].push_back(event.token.token);
        if (event.type != EventType::done) continue;
        CHECK(event.done.status == Status::ok);
        CHECK(event.done.finish == Finish::length);
        ++n_ended;
      }
    }
    if (n_ended == sessions.size()) break;
    REQUIRE(engine.has_work());
    engine.step();
    lab::Probe::pool(engine).check_invariants();
  }
  return tokens;
}

TEST_CASE("an answer's end says how long its prompt waited for a place") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), config_of(512, 2, /*running_max=*/1));
  Engine& engine = open.engine;
  const SessionIdx first = open.session_with(random_ids(1, 80));
  const SessionIdx second = open.session_with(random_ids(2, 80));
  generate(engine, first, 8);
  generate(engine, second, 8);
  u64 wait_ns[2], prefill_ns[2];
  u32 n_ended = 0;
  while (n_ended < 2) {
    engine.step();
    for (u32 i = 0; i < 2; ++i) {
      Event event;
      char text[256];
      while (engine.sessions().take_event(i == 0 ? first : second, &event, text)) {
        if (event.type != EventType::done) continue;
        wait_ns[i] = event.done.wait_ns;
        prefill_ns[i] = event.done.prefill_ns;
        ++n_ended;
      }
    }
  }
  CHECK(wait_ns[0] * 2 < prefill_ns[0]);  // it had its run slot at once
  CHECK(wait_ns[1] > prefill_ns[0] / 2);  // behind the first one's answer
  CHECK(wait_ns[1] < prefill_ns[1]);
}

TEST_CASE("background work gives way to interactive work, and goes on behind it") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), config_of(256, 3));
  Engine& engine = open.engine;
  const auto of = [&](Priority priority, const std::vector<u32>& ids) {
    const SessionIdx idx = *engine.sessions().create({.priority = priority});
    REQUIRE(engine.sessions().feed(idx, ids).has_value());
    generate(engine, idx, 30);
    return idx;
  };
  const std::vector<u32> ids[] = {random_ids(1, 180), random_ids(2, 180)};
  const SessionIdx background = of(Priority::background, ids[0]);
  for (u32 i = 0; i < 6; ++i) engine.step();
  REQUIRE(engine.sessions().state(background).generation.n_generated > 0);
  const SessionIdx interactive = of(Priority::interactive, ids[1]);
  engine.step();
  CHECK(engine.sessions().state(interactive).run.is_admitted);
  CHECK_FALSE(engine.sessions().state(background).run.is_admitted);
  const SessionIdx both[] = {background, interactive};
  const auto tokens = read_together(engine, both);
  for (u32 i = 0; i < 2; ++i) CHECK(tokens[i] == alone(model, ids[i], 30));
}

TEST_CASE("an answer in the background pauses while an interactive one has the only run slot") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), config_of(1024, 3, /*running_max=*/1));
  Engine& engine = open.engine;
  const SessionIdx background = *engine.sessions().create({.priority = Priority::background});
  REQUIRE(engine.sessions().feed(background, random_ids(1, 40)).has_value());
  generate(engine, background, 30);
  for (u32 i = 0; i < 4; ++i) engine.step();
  REQUIRE(engine.sessions().state(background).has_begun());
  const SessionIdx interactive = open.session_with(random_ids(2, 40));
  generate(engine, interactive, 30);
  for (u32 i = 0; i < 5; ++i) {
    engine.step();
    CHECK(engine.sessions().state(interactive).is_admitted());
    CHECK_FALSE(engine.sessions().state(background).is_admitted());
  }
  const SessionIdx both[] = {background, interactive};
  const auto tokens = read_together(engine, both);
  for (u32 i = 0; i < 2; ++i) CHECK(tokens[i] == alone(model, random_ids(i + 1, 40), 30));
}

TEST_CASE("a session whose reader is slow keeps no other from its deadline, or from running") {
  const SmallModel model("llama", "f16");
  VirtualClock clock;
  OpenEngine open(model.path(), config_of(1024, 2, /*running_max=*/1), &clock);
  Engine& engine = open.engine;
  const SessionIdx unread = open.session_with(random_ids(1, 20));
  generate(engine, unread, 500);
  while (engine.has_work()) engine.step();  // its ring is full
  REQUIRE(engine.sessions().state(unread).is_admitted());
  const SessionIdx waits = open.session_with(random_ids(2, 20));
  const u64 deadline_ns = clock.now_ns() + kSecond;
  REQUIRE(engine.sessions()
              .generate(waits, {.max_tokens = 5, .ignore_end = true, .deadline_ns = deadline_ns})
              .has_value());
  while (engine.has_work()) engine.step();
  CHECK(engine.next_deadline_ns() == deadline_ns);
  clock.advance_ns(2 * kSecond);
  REQUIRE(engine.has_work());
  engine.step();
  CHECK(test::read_all(engine, waits).done.finish == Finish::deadline);
  CHECK(engine.next_deadline_ns() == 0);
}

TEST_CASE("where too many wait, the next one is told to come later, and nothing of it changes") {
  const SmallModel model("llama", "f16");
  Config config = config_of(256, 4, /*running_max=*/1);
  config.waiting_max = 1;
  OpenEngine open(model.path(), config);
  Engine& engine = open.engine;
  const SessionIdx runs = open.session_with(random_ids(1, 100));
  generate(engine, runs, 50);
  const SessionIdx waits = open.session_with(random_ids(2, 100));
  REQUIRE(
      engine.sessions().feed(waits, random_ids(3, 10)).has_value());  // has its place in the line
  const SessionIdx third = *engine.sessions().create();
  CHECK(engine.sessions().feed(third, random_ids(4, 100)).error().status == Status::would_block);
  CHECK(engine.sessions().state(third).tokens.n_ids == 0);
  test::read_all(engine, runs);
  open.run();
  CHECK(engine.sessions().feed(third, random_ids(4, 100)).has_value());
}

TEST_CASE("where KV that stays holds the room, what waits for it ends with the reason") {
  const SmallModel model("llama", "f16");
  OpenEngine open(model.path(), config_of(256, 2));
  Engine& engine = open.engine;
  test::LogitsRecord watched;  // a session whose rows are watched is not computed twice
  const SessionIdx stays = *engine.sessions().create();
  lab::Probe(engine).watch_logits(stays, test::LogitsRecord::on_logits, &watched);
  REQUIRE(engine.sessions().feed(stays, random_ids(1, 200)).has_value());
  open.run();
  const SessionIdx late = open.session_with(random_ids(2, 100));
  open.run();
  CHECK(engine.sessions().state(late).state == SessionState::idle);
  CHECK(engine.sessions().state(late).last_error.status == Status::would_block);
  generate(engine, late, 5);
  const DoneEvent done = test::read_all(engine, late).done;
  CHECK(done.finish == Finish::error);
  CHECK(done.status == Status::would_block);
  engine.sessions().destroy(stays);
  generate(engine, late, 5);
  CHECK(test::read_all(engine, late).tokens == alone(model, random_ids(2, 100), 5));
}

TEST_CASE("an answer ends at its deadline, begun or not") {
  const SmallModel model("llama", "f16");
  VirtualClock clock;
  OpenEngine open(model.path(), config_of(256, 2, /*running_max=*/1), &clock);
  Engine& engine = open.engine;
  const auto generate_until = [&](SessionIdx idx, u64 deadline_ns) {
    REQUIRE(engine.sessions()
                .generate(idx, {.max_tokens = 60, .ignore_end = true, .deadline_ns = deadline_ns})
                .has_value());
  };
  const u64 deadline_ns = clock.now_ns() + kSecond;
  const SessionIdx runs = open.session_with(random_ids(1, 20));
  generate_until(runs, deadline_ns);
  const SessionIdx waits = open.session_with(random_ids(2, 20));
  generate_until(waits, deadline_ns);
  for (u32 i = 0; i < 9; ++i) engine.step();
  CHECK(engine.sessions().state(runs).generation.n_generated == 9);
  clock.advance_ns(kSecond);
  const test::Said said = test::read_all(engine, runs);
  CHECK(said.done.finish == Finish::deadline);
  CHECK(said.done.status == Status::ok);
  CHECK(said.tokens.size() == 9);
  const test::Said nothing = test::read_all(engine, waits);
  CHECK(nothing.done.finish == Finish::deadline);
  CHECK(nothing.tokens.empty());
  // Its answer so far stays, and it goes on.
  CHECK(engine.sessions().state(runs).tokens.n_ids == 29);
  generate_until(runs, 0);
  CHECK(test::read_all(engine, runs).tokens.size() == 60);
}

// Which of the sessions get a run slot, in order, when `n` of them run at a time.
std::vector<SessionIdx> order_of_places(Engine& engine) {
  std::vector<SessionIdx> order;
  while (engine.has_work()) {
    engine.step();
    for (const Session& s : engine.sessions().all()) {
      if (s.run.is_admitted && std::ranges::find(order, s.idx) == order.end())
        order.push_back(s.idx);
    }
  }
  return order;
}

TEST_CASE("a prompt whose pages are there, or are about to be, is served so that they are taken") {
  const SmallModel model("llama", "f16");
  const auto joined = [](std::vector<u32> ids, u64 seed, u32 n) {
    const std::vector<u32> more = random_ids(seed, n);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  };
  const std::vector<u32> document = random_ids(1, 160);
  SUBCASE("the longest prefix first") {
    Config config = config_of(1024, 4, /*running_max=*/1);
    config.batch_rows_max = 2 * kPage;
    OpenEngine open(model.path(), config);
    const SessionIdx first = open.session_with(joined(document, 9, 1));
    open.run();
    open.engine.sessions().destroy(first);
    const SessionIdx runs = open.session_with(random_ids(2, 100));
    open.engine.step();
    const SessionIdx foreign = open.session_with(random_ids(3, 200));
    const SessionIdx half =
        open.session_with(joined({document.begin(), document.begin() + 80}, 4, 50));
    const SessionIdx whole = open.session_with(joined(document, 5, 50));
    CHECK(order_of_places(open.engine) == std::vector{runs, whole, half, foreign});
    CHECK(open.engine.sessions().state(whole).generation.reused.n_tokens() == 160);
  }
  SUBCASE("the second of two waits a round") {
    OpenEngine open(model.path(), config_of(1024, 3));
    const SessionIdx first = open.session_with(joined(document, 6, 50));
    const SessionIdx second = open.session_with(joined(document, 7, 50));
    const SessionIdx foreign = open.session_with(random_ids(8, 100));
    open.engine.step();
    CHECK(open.engine.sessions().state(first).run.is_admitted);
    CHECK_FALSE(open.engine.sessions().state(second).run.is_admitted);
    CHECK(open.engine.sessions().state(foreign).run.is_admitted);
    open.run();
    CHECK(open.engine.sessions().state(second).generation.reused.n_tokens() == 160);
    CHECK(open.engine.status().counters.n_prefill_rows == 209 + 49 + 99);
  }
  SUBCASE("of two tenants nobody takes, and nobody waits") {
    OpenEngine open(model.path(), config_of(1024, 2));
    Engine& engine = open.engine;
    for (const char* tenant : {"one", "other"}) {
      const SessionIdx idx = *engine.sessions().create({.tenant = tenant});
      REQUIRE(engine.sessions().feed(idx, document).has_value());
      engine.step();
      CHECK(engine.sessions().state(idx).run.is_admitted);
    }
    open.run();
    CHECK(engine.status().counters.n_prefill_rows == 2 * 159);
  }
}

}  // namespace
}  // namespace tarn::engine::admission_test
