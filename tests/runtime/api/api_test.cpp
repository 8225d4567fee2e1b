// Goal    the C API does what tarn.h says: refusals with a sentence, events until DONE, cancel,
//         fork, truncate, and a dead engine that answers TARN_INTERNAL while the process lives on.
// Method  a small random model behind the real threads; every call that can be wrong is called
//         wrongly once.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/instance.h"
#include "runtime/api/tarn.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::api_test {
namespace {

using test::Answer;
using test::Host;
using test::run;
using test::SmallModel;

TEST_CASE("opening refuses with a sentence and leaves nothing") {
  tarn_engine* engine = reinterpret_cast<tarn_engine*>(1);
  CHECK(tarn_open(nullptr, &engine) == TARN_INVALID_REQUEST);
  CHECK(engine == nullptr);
  tarn_options options = TARN_INIT(tarn_options);
  CHECK(tarn_open(&options, &engine) == TARN_INVALID_CONFIG);
  options.model_path = "/nonexistent/model.gguf";
  CHECK(tarn_open(&options, &engine) == TARN_INVALID_CONFIG);  // no budget
  CHECK(std::string(tarn_error_text()).find("budget") != std::string::npos);
  options.budget_bytes = 1 << 30;
  CHECK(tarn_open(&options, &engine) == TARN_IO_FAILED);
  CHECK(std::string(tarn_error_text()).find("model.gguf") != std::string::npos);
  options.config_toml = "kv.contxt_tokens = 5\n";
  CHECK(tarn_open(&options, &engine) == TARN_INVALID_CONFIG);
  CHECK(std::string(tarn_error_text()).find("kv.context_tokens") != std::string::npos);
  const SmallModel model("llama", "f16");
  options.config_toml = nullptr;
  options.model_path = model.path().c_str();
  options.budget_bytes = 1 << 20;
  CHECK(tarn_open(&options, &engine) == TARN_OVER_BUDGET);
  tarn_plan plan = TARN_INIT(tarn_plan);
  CHECK(tarn_plan_memory(&options, &plan) == TARN_OK);
  CHECK(plan.fits == 0);
  CHECK(plan.total_bytes > plan.budget_bytes);
  tarn_close(nullptr);
}

TEST_CASE("an answer arrives as events, and the same again after a truncate and on a fork") {
  const SmallModel model("llama", "q8_0");
  Host host(model.path());
  tarn_session* session = host.session();
  tarn_event event = TARN_INIT(tarn_event);
  CHECK(tarn_session_poll(session, 0, &event) == TARN_INVALID_REQUEST);
  const char prompt[] = "bakeri somu";
  REQUIRE(tarn_session_feed_text(session, prompt, sizeof prompt - 1, TARN_ADD_SPECIAL) == TARN_OK);
  REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
  tarn_session_info info = TARN_INIT(tarn_session_info);
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.n_computed == info.n_tokens - 1);
  const u64 n_prompt = info.n_tokens;
  tarn_session* fork = nullptr;
  REQUIRE(tarn_session_fork(session, &fork) == TARN_OK);

  const Answer first = run(session, 20);
  CHECK(first.tokens.size() == 20);
  CHECK(first.done.finish == TARN_FINISH_LENGTH);
  CHECK(first.done.n_tokens == 20);
  CHECK(run(fork, 20).tokens == first.tokens);
  REQUIRE(tarn_session_truncate(session, n_prompt) == TARN_OK);
  CHECK(run(session, 20).text == first.text);

  std::vector<u32> ids(64);
  u64 n = 0;
  REQUIRE(tarn_session_tokens(session, n_prompt, ids.data(), ids.size(), &n) == TARN_OK);
  ids.resize(n);
  CHECK(ids == first.tokens);
  std::string pieces;
  for (const u32 id : first.tokens) {
    char piece[256];
    REQUIRE(tarn_piece(host.engine, id, piece, sizeof piece, &n) == TARN_OK);
    pieces.append(piece, n);
  }
  CHECK_FALSE(pieces.empty());
  CHECK(tarn_piece(host.engine, 1u << 30, nullptr, 0, &n) == TARN_INVALID_REQUEST);
  tarn_session_destroy(fork);
  tarn_session_destroy(session);
}

TEST_CASE("an engine that is given a CPU of nobody's is refused") {
  const SmallModel model("llama", "f16");
  const u32 cpus[] = {0, 60000};
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.budget_bytes = u64{1} << 30;
  options.cpus = cpus;
  options.n_cpus = 2;
  tarn_engine* engine = nullptr;
  CHECK(tarn_open(&options, &engine) == TARN_INVALID_CONFIG);
  CHECK(engine == nullptr);
}

TEST_CASE("a callback cancels, a poll times out, old structs are understood") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  tarn_session* session = host.session();
  REQUIRE(tarn_session_feed_text(session, "a", 1, TARN_ADD_SPECIAL) == TARN_OK);
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.ignore_end = 1;
  int n_events = 0;
  REQUIRE(tarn_session_run(
              session, &options,
              [](void* n, const tarn_event* e) -> int32_t {
                return e->type != TARN_EVENT_DONE && ++*static_cast<int*>(n) == 3 ? 1 : 0;
              },
              &n_events) == TARN_OK);
  CHECK(n_events == 3);  // what was there already is not delivered any more

  // A caller built against a shorter struct: what it does not know stays untouched.
  tarn_session_info info = TARN_INIT(tarn_session_info);
  info.struct_size = offsetof(tarn_session_info, n_computed);
  info.n_computed = 12345;
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.n_computed == 12345);
  CHECK(info.n_tokens > 0);
  info.struct_size = offsetof(tarn_session_info, prefill_left_ns);
  info.prefill_left_ns = 12345;
  REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
  CHECK(info.n_computed > 0);
  CHECK(info.prefill_left_ns == 12345);
  info.struct_size = 0;
  CHECK(tarn_session_info_get(session, &info) == TARN_INVALID_REQUEST);

  options.n_stops = 17;
  CHECK(tarn_session_generate(session, &options) == TARN_INVALID_REQUEST);
  options.n_stops = 1;
  CHECK(tarn_session_generate(session, &options) == TARN_INVALID_REQUEST);  // stops is NULL
  options.n_stops = 0;
  options.top_p = 7.0f;
  options.min_p = 7.0f;
  CHECK(tarn_session_generate(session, &options) == TARN_INVALID_REQUEST);
  tarn_session_destroy(session);
}

TEST_CASE("tokens without logprobs are the same tokens") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  const std::vector<u32> ids = test::random_ids(1, 20);
  Answer answers[2];
  for (const bool wants_logprobs : {true, false}) {
    tarn_session* session = host.session();
    REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
    answers[wants_logprobs] = run(session, 10, wants_logprobs);
    tarn_session_destroy(session);
  }
  CHECK(answers[0].tokens.size() == 10);
  CHECK(answers[0].tokens == answers[1].tokens);
  CHECK(std::ranges::all_of(answers[0].logprobs, [](float x) { return x == 0.0f; }));
  CHECK(std::ranges::all_of(answers[1].logprobs, [](float x) { return x < 0.0f; }));
}

// Asserts where a plan reserves what it reads the file with.
struct BrokenReserve final : Reserve {
  Result<ReserveOutcome> reserve(const ReserveArgs& args) override {
    TARN_ASSERT(n_calls++ == 0);
    return system.reserve(args);
  }
  void release(std::span<std::byte> bytes) override { system.release(bytes); }
  SystemReserve system{};
  u32 n_calls = 0;
};

TEST_CASE("an assertion while planning leaves the host's thread alone") {
  const SmallModel model("llama", "f16");
  // Static: the thread that failed stays parked in what it was given.
  static BrokenReserve reserve;
  static u32 n_fatal = 0;
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.fatal = [](void*, const char*, const char*, u32) { ++n_fatal; };
  const auto report = api::Instance::plan(options, {.reserve = &reserve});
  REQUIRE(!report);
  CHECK(report.error().status == Status::internal);
  CHECK(n_fatal == 1);
  CHECK(reserve.n_calls == 2);
}

TEST_CASE("a failed assertion kills the engine, not the process; the next one works") {
  const SmallModel model("llama", "f16");
  // No workers: what a dead engine leaves behind is its one parked thread, detached.
  Host host(model.path(), "kv.context_tokens = 512\ncpu.threads = 1\n");
  tarn_session* session = host.session();
  auto* instance = reinterpret_cast<api::Instance*>(host.engine);
  const Result<void> broken = instance->service.call([]() -> Result<void> {
    TARN_ASSERT(1 + 1 == 3);
    return {};
  });
  CHECK(broken.error().status == Status::internal);
  CHECK(host.n_fatal == 1);
  CHECK(tarn_session_feed_text(session, "x", 1, 0) == TARN_INTERNAL);
  CHECK(std::string(tarn_error_text()).find("dead") != std::string::npos);
  CHECK(tarn_session_cancel(session) == TARN_INTERNAL);
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  CHECK(tarn_engine_status_get(host.engine, &status) == TARN_INTERNAL);
  CHECK(status.dead == 1);
  Host next(model.path());
  tarn_session* alive = next.session();
  REQUIRE(tarn_session_feed_text(alive, "x", 1, TARN_ADD_SPECIAL) == TARN_OK);
  CHECK(run(alive, 3).tokens.size() == 3);
  tarn_session_destroy(alive);
}

}  // namespace
}  // namespace tarn::api_test
