// Goal    A request's client may go away at any point of its answer: its sessions are destroyed,
//         and other answers say what they say alone. So do choices, refusals and kept names.
// Method  A real engine on the built-in model, driven by the loop turn by turn; before each turn in
//         turn one of four answers is abandoned.
#include "tools/tarnd/answers.h"

#include <doctest/doctest.h>
#include <event2/event.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/api/tarn_chunks.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tools/builtin/built_in_model.h"
#include "tools/tarnd/engine_error.h"
#include "tools/tarnd/network_memory.h"

namespace tarn::daemon::answers_test {
namespace {

struct Heard {
  std::array<std::string, 8> texts;
  std::array<int32_t, 8> finishes{};
  u64 n_begun = 0, n_finished = 0, n_failed = 0;
  AnswerSummary summary;
  HttpError error;
};

class Listener : public AnswerSink {
 public:
  explicit Listener(Heard& heard) : heard_(heard) {}
  void begun(const AnswerSummary&) override { ++heard_.n_begun; }
  void token(u32, const tarn_event&) override {}
  void text(u32 choice, std::string_view text) override { heard_.texts[choice] += text; }
  void done(u32 choice, int32_t finish, const AnswerSummary&, bool) override {
    heard_.finishes[choice] = finish;
  }
  void finished(const AnswerSummary& summary) override {
    ++heard_.n_finished;
    heard_.summary = summary;
  }
  void failed(const HttpError& error) override {
    ++heard_.n_failed;
    heard_.error = error;
  }

 private:
  Heard& heard_;
};

class World {
 public:
  explicit World(const std::string& more_toml = "", std::string model = "") {
    NetworkMemory::install(u64{8} << 20);
    base = event_base_new();
    port = std::make_unique<EnginePort>(base);
    answers = std::make_unique<Answers>(*port);
    port->on_event = [this](const tarn_event& event) { answers->on_event(event); };
    model_ = tools::built_in_unless_named(model);
    port->open({.model_path = model,
                .config_toml = "kv.context_tokens = 1024\nengine.sessions_max = 8\n"
                               "cpu.threads = 1\nmemory.budget_bytes = \"1GiB\"\n" +
                               more_toml,
                .chat_template = "plain"});
    run_until([this] { return port->state() != EnginePort::State::loading; });
    REQUIRE_MESSAGE(port->state() == EnginePort::State::ready, port->error().text);
  }
  ~World() {
    answers.reset();
    port.reset();
    event_base_free(base);
  }
  void turn() {
    event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    usleep(50);
  }
  template <class Done>
  void run_until(Done&& done) {
    constexpr u64 kTurnsMax = 400'000;
    for (u64 i = 0; !done(); ++i) {
      REQUIRE(i < kTurnsMax);
      turn();
    }
  }
  void run_all() {
    run_until([this] { return answers->n_running() == 0; });
  }
  u64 n_sessions() {
    u64 n = 0;
    tarn_session_list(port->get(), nullptr, 0, &n);
    return n;
  }

  event_base* base;
  std::unique_ptr<EnginePort> port;
  std::unique_ptr<Answers> answers;

 private:
  std::unique_ptr<tools::BuiltInModel> model_;
};

AnswerPlan plan_of(const std::string& prompt, u32 n_choices = 1, u32 n_tokens = 12) {
  AnswerPlan plan;
  plan.prompts = {{.text = prompt}};
  plan.n_choices = n_choices;
  plan.options.max_tokens = n_tokens;
  plan.options.ignore_end = 1;
  return plan;
}

Heard heard_alone(World& world, AnswerPlan plan) {
  Heard heard;
  world.answers->start(std::move(plan), std::make_unique<Listener>(heard));
  world.run_all();
  return heard;
}

TEST_CASE("a prompt without a token names its field, where the model has no BOS") {
  const test::SmallModel model("qwen2", "f16");
  World world("", model.path());
  const Heard none = heard_alone(world, plan_of(""));
  CHECK(none.n_failed == 1);
  CHECK(none.error.status == 400);
  CHECK(none.error.param == "prompt");
  AnswerPlan two = plan_of("");
  two.prompts.insert(two.prompts.begin(), {.text = "bakeri"});
  CHECK(heard_alone(world, std::move(two)).error.param == "prompt");
  CHECK(heard_alone(world, plan_of("bakeri")).n_finished == 1);
}

TEST_CASE("an answer, choices of several prompts, and nothing generated") {
  World world;
  const Heard one = heard_alone(world, plan_of("Log book"));
  CHECK(one.n_begun == 1);
  CHECK(one.n_finished == 1);
  CHECK(one.finishes[0] == TARN_FINISH_LENGTH);
  CHECK(one.summary.n_generated == 12);
  AnswerPlan plan = plan_of("Log book", 2);
  plan.prompts.push_back({.text = "Q: What is"});
  const Heard four = heard_alone(world, std::move(plan));
  CHECK(four.n_finished == 1);
  CHECK(four.summary.n_generated == 48);
  CHECK(four.texts[0] == one.texts[0]);  // greedy choices are equal
  CHECK(four.texts[1] == one.texts[0]);
  CHECK(four.texts[2] == heard_alone(world, plan_of("Q: What is")).texts[0]);
  AnswerPlan nothing = plan_of("Log book", 2);
  nothing.reads_alone = true;
  const Heard none = heard_alone(world, std::move(nothing));
  CHECK(none.n_begun == 1);
  CHECK(none.n_finished == 1);
  CHECK(none.summary.n_prompt_tokens == one.summary.n_prompt_tokens);
  CHECK(none.summary.n_generated == 0);
  CHECK(world.n_sessions() == 0);
}

TEST_CASE("refusals: the context, sessions, no ids, and bad JSON") {
  World world;
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "word ";
  const Heard far = heard_alone(world, plan_of(words));
  REQUIRE(far.n_failed == 1);
  CHECK(far.error.status == 400);
  CHECK(far.error.type == "exceed_context_size_error");
  CHECK(far.error.code == "context_length_exceeded");
  CHECK(far.error.param == "prompt");
  REQUIRE(far.error.numbers.size() == 2);
  CHECK(far.error.numbers[0].first == "n_prompt_tokens");
  CHECK(far.error.numbers[0].second > 2000);
  CHECK(far.error.numbers[1] == std::pair<std::string_view, u64>("n_ctx", 1024));
  AnswerPlan wrong = plan_of("");
  wrong.prompts[0] = {.ids = {99'999'999}, .has_ids = true};
  CHECK(heard_alone(world, std::move(wrong)).error.status == 400);
  AnswerPlan chat = plan_of("");
  chat.prompts.clear();
  chat.is_chat = true;
  chat.messages_json = R"([{"role":"tool","content":"x"}])";  // the template refuses it
  CHECK(heard_alone(world, std::move(chat)).error.status == 400);
  Heard many[9];
  for (Heard& each : many) {
    world.answers->start(plan_of("Log book"), std::make_unique<Listener>(each));
  }
  world.run_all();
  u64 n_refused = 0;
  for (const Heard& each : many) {
    CHECK(each.n_finished + each.n_failed == 1);
    if (each.n_failed == 1) CHECK(each.error.status == 429);
    if (each.n_failed == 1) CHECK(each.error.retry_after_s.value_or(0) >= 1);
    n_refused += each.n_failed;
  }
  CHECK(n_refused == 1);
  CHECK(world.n_sessions() == 0);
}

TEST_CASE("where others hold the KV, choices are told to come later, not that they are too long") {
  World world;
  tarn_engine* const engine = world.port->get();
  tarn_session* stays = nullptr;  // its placed KV does not follow from its tokens, so it stays
  REQUIRE(tarn_session_create(engine, nullptr, &stays) == TARN_OK);
  const std::vector<u32> chunk(700, 40), own(9, 41);
  tarn_part parts[2] = {TARN_INIT(tarn_part), TARN_INIT(tarn_part)};
  parts[0].ids = own.data();
  parts[0].n_ids = own.size();
  parts[1].ids = chunk.data();
  parts[1].n_ids = chunk.size();
  parts[1].is_chunk = 1;
  REQUIRE(tarn_session_feed_parts(stays, parts, 2, 0.0f, 0) == TARN_OK);
  REQUIRE(tarn_session_wait(stays, -1) == TARN_OK);
  const auto asked = [](u32 n_choices) {
    AnswerPlan plan = plan_of("", n_choices);
    plan.prompts[0] = {.ids = std::vector<u32>(1000, 42), .has_ids = true};
    return plan;
  };
  for (const u32 n_choices : {1u, 2u}) {
    CAPTURE(n_choices);
    const Heard heard = heard_alone(world, asked(n_choices));
    REQUIRE(heard.n_failed == 1);
    CHECK(heard.error.status == 429);
    CHECK(heard.error.code.empty());
    CHECK(heard.error.retry_after_s.value_or(0) >= 1);
  }
  tarn_session_destroy(stays);
  CHECK(heard_alone(world, asked(2)).n_finished == 1);
}

TEST_CASE("the reason decides what a client is told, whatever the words are") {
  constexpr const char* kMisleading = "retry_ms 9000, raise -c (kv.context_tokens)";
  struct Case {
    int32_t status, reason;
    int http_status;
    u64 retry_after_s;
  };
  constexpr Case kCases[] = {
      {TARN_INVALID_REQUEST, TARN_REASON_CONTEXT_TOO_LONG, 400, 0},
      {TARN_INVALID_REQUEST, TARN_REASON_BAD_FIELD, 400, 0},
      {TARN_INVALID_REQUEST, TARN_REASON_BUSY_KV, 429, 3},
      {TARN_WOULD_BLOCK, TARN_REASON_BUSY_WAITING, 429, 3},
      {TARN_WOULD_BLOCK, TARN_REASON_NONE, 429, 3},
      {TARN_NOT_FOUND, TARN_REASON_NAME_NOT_FOUND, 404, 0},
      {TARN_IO_FAILED, TARN_REASON_NONE, 503, 5},
  };
  for (const Case& each : kCases) {
    CAPTURE(each.reason);
    const HttpError error = http_error({.status = each.status,
                                        .reason = each.reason,
                                        .text = kMisleading,
                                        .figures = {{{"waiting", 2}, {"retry_ms", 2001}}}});
    CHECK(error.status == each.http_status);
    CHECK(error.retry_after_s.value_or(0) == each.retry_after_s);
    CHECK((error.code == "context_length_exceeded") ==
          (each.reason == TARN_REASON_CONTEXT_TOO_LONG));
  }
}

TEST_CASE("a client that goes away at any point leaves nothing, and changes no other answer") {
  World world;
  const std::string alone = heard_alone(world, plan_of("Log book")).texts[0];
  bool ends_first = false;
  u64 n_points = 0;
  for (u64 point = 0; !ends_first; point += 1 + point / 16, ++n_points) {
    CAPTURE(point);
    Heard gone, stays;
    Answer* const leaves = world.answers->start(plan_of("Log bo", static_cast<u32>(1 + point % 3)),
                                                std::make_unique<Listener>(gone));
    world.answers->start(plan_of("Log book"), std::make_unique<Listener>(stays));
    for (u64 i = 0; i < point && gone.n_finished + gone.n_failed == 0; ++i) world.turn();
    ends_first = gone.n_finished + gone.n_failed > 0;
    if (!ends_first) leaves->abandon();
    const Heard before = gone;
    world.run_all();
    if (!ends_first) CHECK(gone.n_finished + gone.n_failed == 0);
    CHECK(gone.texts == before.texts);  // nothing was said any more
    REQUIRE(stays.n_finished == 1);
    REQUIRE(stays.texts[0] == alone);
    REQUIRE(world.n_sessions() == 0);
  }
  // The replies to create, feed and generate and the end come in turns of their own; several tokens
  // may come in one.
  CHECK(n_points >= 4);
}

TEST_CASE("ending all answers tells each once, at any point") {
  World world;
  for (u64 point = 0; point < 40; point += 3) {
    CAPTURE(point);
    Heard heard[3];
    for (Heard& each : heard) {
      world.answers->start(plan_of("Log book", 2, 200), std::make_unique<Listener>(each));
    }
    for (u64 i = 0; i < point; ++i) world.turn();
    world.answers->fail_all({.status = 503, .type = "unavailable_error", .message = "ends"});
    world.run_all();
    for (const Heard& each : heard) CHECK(each.n_finished + each.n_failed == 1);
    REQUIRE(world.n_sessions() == 0);
  }
}

TEST_CASE("a kept session goes on with its next request, and has one at a time") {
  const test::TempDir dir("tarnd_answers");
  World world("store.path = '" + dir.path() +
              "'\nstore.quota_bytes = \"256MiB\"\nstore.sessions = true\n");
  AnswerPlan first = plan_of("Log book");
  first.session = "s";
  Heard heard, other;
  world.answers->start(std::move(first), std::make_unique<Listener>(heard));
  AnswerPlan second = plan_of("Log book");
  second.session = "s";
  CHECK(world.answers->start(std::move(second), std::make_unique<Listener>(other)) == nullptr);
  CHECK(other.error.status == 409);
  world.run_all();
  REQUIRE_MESSAGE(heard.n_finished == 1, heard.error.message);
  AnswerPlan third = plan_of(" and then");
  third.session = "s";
  const Heard next = heard_alone(world, std::move(third));
  REQUIRE_MESSAGE(next.n_finished == 1, next.error.message);
  CHECK(next.summary.n_prompt_tokens > heard.summary.n_prompt_tokens + 12);
  // A refused one is told when the name is free.
  AnswerPlan refused = plan_of("");
  refused.session = "s";
  refused.prompts = {{.ids = {~u32{0}}, .has_ids = true}};
  Heard failed, after;
  world.answers->start(std::move(refused), std::make_unique<Listener>(failed));
  while (failed.n_failed == 0) world.turn();
  CHECK(failed.error.status == 400);
  AnswerPlan fourth = plan_of(" and then");
  fourth.session = "s";
  CHECK(world.answers->start(std::move(fourth), std::make_unique<Listener>(after)) != nullptr);
  world.run_all();
  CHECK(after.n_finished == 1);
  AnswerPlan foreign = plan_of("Log book");
  foreign.session = "s";
  foreign.tenant = "uid:7";  // its own name
  CHECK(heard_alone(world, std::move(foreign)).summary.n_prompt_tokens ==
        heard.summary.n_prompt_tokens);
}

TEST_CASE("more calls than libtarn takes at a time wait in order") {
  World world;
  u64 n_replies = 0, n_failed = 0;
  std::vector<tarn_engine_status> statuses(1000, TARN_INIT(tarn_engine_status));
  for (tarn_engine_status& status : statuses) {
    world.port->call(
        [&status](tarn_engine* engine, void* request) {
          return tarn_submit_engine_status_get(engine, &status, request);
        },
        [&](const tarn_event& reply) {
          ++n_replies;
          n_failed += u64{reply.status != TARN_OK};
        });
  }
  world.run_until([&] { return n_replies == statuses.size(); });
  CHECK(n_failed == 0);
}

}  // namespace
}  // namespace tarn::daemon::answers_test
