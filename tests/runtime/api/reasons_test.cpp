// Goal    each failure has its reason, key and figures beside the text: the same for a blocking
//         call and in the reply of a submitted one, for a struct of any size.
// Method  a table of calls that fail, each once by either way; a table of fields, each set wrongly.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/tarn.h"
#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"
#include "runtime/api/tarn_store.h"
#include "tests/runtime/api/event_loop.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::reasons_test {
namespace {

using test::Host;
using test::SmallModel;

constexpr u32 kContext = 512;

tarn_error latest() {
  tarn_error error = TARN_INIT(tarn_error);
  REQUIRE(tarn_error_get(&error) == TARN_OK);
  return error;
}

u64 figure(const tarn_figure (&figures)[4], std::string_view name) {
  for (const tarn_figure& each : figures) {
    if (each.name == name) return each.value;
  }
  FAIL("no figure ", std::string(name));
  return 0;
}

struct World {
  SmallModel model{"llama", "f16"};
  Host host{model.path()};
  tarn_session* session = host.session();
  std::vector<u32> ids = std::vector<u32>(kContext + 7, 1);
  std::string text = std::string(100'000, 'a');
  tarn_session* other = nullptr;
};

// A call that fails; `request` is NULL for the blocking form.
struct Case {
  const char* name;
  int32_t status, reason;
  const char* key;
  int32_t (*call)(World& world, void* request, bool is_submitted);
};

constexpr Case kCases[] = {
    {"a prompt of ids that is too long", TARN_INVALID_REQUEST, TARN_REASON_CONTEXT_TOO_LONG, "",
     [](World& w, void* request, bool is_submitted) {
       return is_submitted ? tarn_submit_feed(w.session, w.ids.data(), w.ids.size(), request)
                           : tarn_session_feed(w.session, w.ids.data(), w.ids.size());
     }},
    {"a text that is too long", TARN_INVALID_REQUEST, TARN_REASON_CONTEXT_TOO_LONG, "",
     [](World& w, void* request, bool is_submitted) {
       return is_submitted
                  ? tarn_submit_feed_text(w.session, w.text.data(), w.text.size(), 0, request)
                  : tarn_session_feed_text(w.session, w.text.data(), w.text.size(), 0);
     }},
    {"an id that the vocabulary does not have", TARN_INVALID_REQUEST, TARN_REASON_BAD_FIELD, "ids",
     [](World& w, void* request, bool is_submitted) {
       static constexpr u32 kWrong = ~u32{0};
       return is_submitted ? tarn_submit_feed(w.session, &kWrong, 1, request)
                           : tarn_session_feed(w.session, &kWrong, 1);
     }},
    {"nothing was fed", TARN_INVALID_REQUEST, TARN_REASON_WRONG_STATE, "",
     [](World& w, void* request, bool is_submitted) {
       const tarn_generate_options options = TARN_INIT(tarn_generate_options);
       return is_submitted ? tarn_submit_generate(w.session, &options, request)
                           : tarn_session_generate(w.session, &options);
     }},
    {"fewer tokens", TARN_INVALID_REQUEST, TARN_REASON_BAD_FIELD, "n_tokens",
     [](World& w, void* request, bool is_submitted) {
       return is_submitted ? tarn_submit_truncate(w.session, 9, request)
                           : tarn_session_truncate(w.session, 9);
     }},
    {"an engine that keeps nothing", TARN_INVALID_REQUEST, TARN_REASON_NO_STORE, "",
     [](World& w, void* request, bool is_submitted) {
       return is_submitted
                  ? tarn_submit_restore(w.host.engine, nullptr, "name", &w.other, nullptr, request)
                  : tarn_session_restore(w.host.engine, nullptr, "name", &w.other, nullptr);
     }},
    {"no chat template", TARN_UNSUPPORTED, TARN_REASON_NO_TEMPLATE, "chat_template",
     [](World& w, void* request, bool is_submitted) {
       static constexpr std::string_view kHi = R"([{"role":"user","content":"Hi"}])";
       return is_submitted
                  ? tarn_submit_feed_chat(w.session, kHi.data(), kHi.size(), nullptr, request)
                  : tarn_session_feed_chat(w.session, kHi.data(), kHi.size(), nullptr);
     }},
};

TEST_CASE("a failure has the same reason for a program by either way") {
  World world;
  for (const Case& each : kCases) {
    CAPTURE(each.name);
    CHECK(each.call(world, nullptr, false) == each.status);
    const tarn_error blocking = latest();
    const std::string text = tarn_error_text();
    CHECK(blocking.status == each.status);
    CHECK(blocking.reason == each.reason);
    CHECK(std::string_view(blocking.key) == each.key);
    REQUIRE(each.call(world, &world, true) == TARN_OK);
    const tarn_event reply = test::take_reply(world.host.engine);
    CHECK(reply.status == each.status);
    CHECK(reply.reason == each.reason);
    CHECK(std::string_view(reply.key) == each.key);
    CHECK(std::string(reply.text, reply.text_bytes) == text);
    for (int i = 0; i < 4; ++i) {
      CHECK(std::string_view(reply.figures[i].name) == blocking.figures[i].name);
      CHECK(reply.figures[i].value == blocking.figures[i].value);
    }
    if (each.reason != TARN_REASON_CONTEXT_TOO_LONG) continue;
    CHECK(figure(reply.figures, "n_prompt_tokens") > kContext);
    CHECK(figure(reply.figures, "n_ctx") == kContext);
  }
}

TEST_CASE("the length that is told counts what the session has") {
  World world;
  REQUIRE(tarn_session_feed(world.session, world.ids.data(), 10) == TARN_OK);
  REQUIRE(tarn_session_feed(world.session, world.ids.data(), kContext) == TARN_INVALID_REQUEST);
  CHECK(figure(latest().figures, "n_prompt_tokens") == kContext + 10);
}

u64 n_tokens_of(const World& world, std::string_view text) {
  u64 n = 0;
  tarn_tokenize(world.host.engine, text.data(), text.size(), 0, nullptr, 0, &n);
  return n;
}

TEST_CASE("the length that is told is exact, however long the text is") {
  World world;
  for (const u64 n_bytes : {u64{2'000}, u64{20'000}, u64{3'000'000}}) {
    for (const std::string_view unit : {"a", "bakeri somu ", "\xC3\xA9"}) {
      CAPTURE(n_bytes);
      CAPTURE(unit);
      std::string text;
      while (text.size() < n_bytes) text += unit;
      const u64 n_tokens = n_tokens_of(world, text);
      REQUIRE(n_tokens > kContext);
      CHECK(tarn_session_feed_text(world.session, text.data(), text.size(), 0) ==
            TARN_INVALID_REQUEST);
      CHECK(latest().reason == TARN_REASON_CONTEXT_TOO_LONG);
      CHECK(figure(latest().figures, "n_prompt_tokens") == n_tokens);
      tarn_part parts[3] = {TARN_INIT(tarn_part), TARN_INIT(tarn_part), TARN_INIT(tarn_part)};
      for (const int i : {0, 1}) {
        parts[i].text = text.data();
        parts[i].text_bytes = text.size();
        parts[i].is_chunk = 1;
      }
      parts[2].ids = world.ids.data();
      parts[2].n_ids = world.ids.size();
      CHECK(tarn_session_feed_parts(world.session, parts, 3, 1, 0) == TARN_INVALID_REQUEST);
      CHECK(latest().reason == TARN_REASON_CONTEXT_TOO_LONG);
      CHECK(figure(latest().figures, "n_prompt_tokens") == 2 * n_tokens + world.ids.size());
    }
  }
}

TEST_CASE("a conversation that was not rendered has a length that says it is estimated") {
  const SmallModel model("qwen2", "f16");
  Host host(model.path(), "kv.context_tokens = 512\n", "chatml");
  tarn_session* session = host.session();
  struct Trial {
    u64 n_bytes;
    bool is_estimated;
  };
  for (const Trial& trial : {Trial{100'000, false}, Trial{3'000'000, true}}) {
    CAPTURE(trial.n_bytes);
    const std::string messages =
        R"([{"role":"user","content":")" + std::string(trial.n_bytes, 'a') + R"("}])";
    CHECK(tarn_session_feed_chat(session, messages.data(), messages.size(), nullptr) ==
          TARN_INVALID_REQUEST);
    const tarn_error error = latest();
    CHECK(error.reason == TARN_REASON_CONTEXT_TOO_LONG);
    CHECK(figure(error.figures, "n_prompt_tokens") > kContext);
    CHECK((error.figures[2].value == 1) == trial.is_estimated);
  }
  tarn_session_destroy(session);
}

TEST_CASE("a field of the options is refused by its name in the header") {
  World world;
  REQUIRE(tarn_session_feed(world.session, world.ids.data(), 4) == TARN_OK);
  struct Trial {
    const char* key;
    void (*set)(tarn_generate_options&);
  };
  static constexpr const char* kLong =
      "a stop string that has more than the 128 bytes which one may have, so that it is refused "
      "by the name of its field in the options.";
  static constexpr const char* kStops[] = {kLong};
  static constexpr tarn_logit_bias kBias = {~u32{0}, 1.0f};
  constexpr Trial kTrials[] = {
      {"temperature", [](tarn_generate_options& o) { o.temperature = -1; }},
      {"top_p", [](tarn_generate_options& o) { o.top_p = -1; }},
      {"min_p", [](tarn_generate_options& o) { o.min_p = 2; }},
      {"repetition_penalty", [](tarn_generate_options& o) { o.repetition_penalty = 0.001f; }},
      {"frequency_penalty", [](tarn_generate_options& o) { o.frequency_penalty = 101; }},
      {"presence_penalty", [](tarn_generate_options& o) { o.presence_penalty = -101; }},
      {"penalty_last_tokens", [](tarn_generate_options& o) { o.penalty_last_tokens = 4097; }},
      {"n_top_logprobs", [](tarn_generate_options& o) { o.n_top_logprobs = 21; }},
      {"logit_biases",
       [](tarn_generate_options& o) { o.logit_biases = &kBias, o.n_logit_biases = 1; }},
      {"stops", [](tarn_generate_options& o) { o.stops = kStops, o.n_stops = 1; }},
      {"struct_size", [](tarn_generate_options& o) { o.struct_size = 0; }},
  };
  for (const Trial& trial : kTrials) {
    CAPTURE(trial.key);
    tarn_generate_options options = TARN_INIT(tarn_generate_options);
    trial.set(options);
    CHECK(tarn_session_generate(world.session, &options) == TARN_INVALID_REQUEST);
    CHECK(latest().reason == TARN_REASON_BAD_FIELD);
    CHECK(std::string_view(latest().key) == trial.key);
  }
}

TEST_CASE("bounds of the engine and of its configuration have reasons and figures") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), "kv.context_tokens = 64\nengine.sessions_max = 1\n");
  tarn_session* second = nullptr;
  host.session();
  CHECK(tarn_session_create(host.engine, nullptr, &second) == TARN_WOULD_BLOCK);
  CHECK(latest().reason == TARN_REASON_BUSY_SESSIONS);
  CHECK(figure(latest().figures, "sessions_max") == 1);
  tarn_event event = TARN_INIT(tarn_event);
  CHECK(tarn_engine_take(host.engine, &event) == TARN_WOULD_BLOCK);
  CHECK(latest().reason == TARN_REASON_NOT_YET);
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.config_toml = "kv.page_tokens = 17\n";
  tarn_plan plan = TARN_INIT(tarn_plan);
  CHECK(tarn_plan_memory(&options, &plan) == TARN_INVALID_CONFIG);
  CHECK(latest().reason == TARN_REASON_BAD_SETTING);
  CHECK(std::string_view(latest().key) == "kv.page_tokens");
}

TEST_CASE("a struct of an earlier version gets the fields that it has, and none is refused") {
  const SmallModel model("llama", "f16");
  Host host(model.path());
  CHECK(tarn_session_feed(nullptr, nullptr, 0) == TARN_INVALID_REQUEST);
  tarn_error error = TARN_INIT(tarn_error);
  error.key = "untouched";
  error.struct_size = offsetof(tarn_error, key);
  CHECK(tarn_error_get(&error) == TARN_OK);
  CHECK(error.status == TARN_INVALID_REQUEST);
  CHECK(error.reason == TARN_REASON_WRONG_STATE);
  CHECK(std::string_view(error.key) == "untouched");
  CHECK(tarn_error_get(nullptr) == TARN_INVALID_REQUEST);
  CHECK(std::string_view(latest().key) == "struct_size");
}

}  // namespace
}  // namespace tarn::reasons_test
