// Goal    tarn_chat.h: a conversation's text and ids, fed whole each turn with all but its new
//         tokens reused; a sentence for each bad input.
// Method  small random models with our own templates; prefill rows counted by the engine; a table
//         of what is refused, and of a word that the sentence must have.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/tarn_chat.h"
#include "runtime/chat/built_in_templates.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"

namespace tarn::chat_test {
namespace {

using test::Host;
using test::run;
using test::SmallModel;
using test::tokens_of;

struct Shown {
  std::string text;
  std::vector<u32> ids;
};

int32_t render(const Host& host, const std::string& messages, const tarn_chat_options* options,
               Shown* out) {
  u64 n_bytes = 0, n_ids = 0;
  out->text.assign(64 * kKiB, '?');
  out->ids.assign(16 * kKiB, 0);
  const int32_t status =
      tarn_chat_render(host.engine, messages.data(), messages.size(), options, out->text.data(),
                       out->text.size(), &n_bytes, out->ids.data(), out->ids.size(), &n_ids);
  out->text.resize(n_bytes);
  out->ids.resize(n_ids);
  return status;
}

Shown shown(const Host& host, const std::string& messages) {
  Shown out;
  const int32_t status = render(host, messages, nullptr, &out);
  if (status != TARN_OK) FAIL(std::string(tarn_error_text()));
  return out;
}

void feed(tarn_session* session, const std::string& messages) {
  const int32_t status = tarn_session_feed_chat(session, messages.data(), messages.size(), nullptr);
  if (status != TARN_OK) FAIL(std::string(tarn_error_text()));
}

u64 n_prefill_rows(const Host& host) {
  tarn_engine_status status = TARN_INIT(tarn_engine_status);
  REQUIRE(tarn_engine_status_get(host.engine, &status) == TARN_OK);
  return status.n_prefill_rows;
}

std::string message(const char* role, const std::string& content) {
  return std::string(R"({"role":")") + role + R"(","content":")" + content + R"("})";
}

std::string words(u32 i) {
  constexpr const char* kWords[] = {"bakeri", "somu", "tel", "run", "a b", "x"};
  return std::string(kWords[i % 6]) + " " + kWords[(i / 2) % 6] + std::to_string(i);
}

// A system's text or none, then user and assistant in turn.
std::string conversation(bool has_system, u32 n_turns) {
  std::string out = "[" + (has_system ? message("system", "be brief") + "," : "");
  out += message("user", words(0));
  for (u32 turn = 1; turn < n_turns; ++turn) {
    out += "," + message("assistant", words(2 * turn)) + "," + message("user", words(2 * turn + 1));
  }
  return out + "]";
}

TEST_CASE("twenty turns, each from its whole list: all but the new tokens are reused") {
  for (const char* arch : {"llama", "qwen2"}) {
    const SmallModel model(arch, "f16");
    for (const chat::BuiltInTemplate& built_in : chat::built_in_templates()) {
      CAPTURE(std::string(arch));
      CAPTURE(std::string(built_in.name));
      Host host(model.path(), "kv.context_tokens = 4096\nengine.sessions_max = 1\n",
                std::string(built_in.name).c_str());
      tarn_session* session = host.session();
      u64 n_before = 0;
      for (u32 turn = 1; turn <= 20; ++turn) {
        CAPTURE(turn);
        const std::string messages = conversation(/*has_system=*/arch[0] == 'q', turn);
        const std::vector<u32> ids = shown(host, messages).ids;
        const u64 n_rows = n_prefill_rows(host);
        feed(session, messages);
        CHECK(tokens_of(session) == ids);
        REQUIRE(tarn_session_wait(session, -1) == TARN_OK);
        // The last token's row waits for an answer: here the next turn computes it.
        const u64 n_new = ids.size() - n_before;
        CHECK(n_prefill_rows(host) - n_rows == n_new - (turn == 1 ? 1 : 0));
        n_before = ids.size();
      }
      CHECK(host.log.find("changed") == std::string::npos);
      tarn_session_info info = TARN_INIT(tarn_session_info);
      REQUIRE(tarn_session_info_get(session, &info) == TARN_OK);
      CHECK(info.reused_from_memory + 2 < info.n_tokens);
      tarn_session_destroy(session);
    }
  }
}

TEST_CASE("callers render side by side while the engine works") {
  const SmallModel model("qwen2", "f16");
  Host host(model.path(), "kv.context_tokens = 2048\n", "chatml");
  tarn_session* session = host.session();
  feed(session, conversation(true, 3));
  std::vector<Shown> want;
  for (u32 i = 0; i < 3; ++i) want.push_back(shown(host, conversation(i == 0, i + 2)));
  const auto is_same = [&](u32 i) {
    for (u32 n = 0; n < 30; ++n) {
      Shown got;
      const bool is_done = render(host, conversation(i == 0, i + 2), nullptr, &got) == TARN_OK;
      if (!is_done || got.text != want[i].text || got.ids != want[i].ids) return false;
    }
    return true;
  };
  bool same[3] = {};
  std::vector<std::thread> threads;
  for (u32 i = 0; i < 3; ++i) threads.emplace_back([&, i] { same[i] = is_same(i); });
  CHECK(run(session, 100).tokens.size() == 100);
  for (std::thread& thread : threads) thread.join();
  for (const bool each : same) CHECK(each);
}

TEST_CASE("a zero byte in a message is a character like others, wherever the message has it") {
  const SmallModel model("llama", "f16");
  Host host(model.path(), "kv.context_tokens = 512\n",
            "{% for m in messages %}{{ m.role }}:{{ m.content }}:{{ m.content|length }}:"
            "{{ m|tojson }}{% endfor %}");
  const std::string zero(1, '\0');
  const Shown all = shown(host, R"([{"role":"us\u0000er","content":"a\u0000b","na\u0000me":"c"}])");
  CHECK(all.text == "us" + zero + "er:a" + zero +
                        R"(b:3:{"role": "us\u0000er", "content": "a\u0000b", "na\u0000me": "c"})");
}

TEST_CASE("text and ids: lengths alone, too little room, variables, no generation prompt") {
  const SmallModel model("llama", "f16");
  constexpr char kTemplate[] =
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if tools %}{{ tools[0].name }}{% endif %}{{ date }}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  Host host(model.path(), "kv.context_tokens = 512\n", kTemplate);
  const std::string messages = "[" + message("user", "<s>tel") + "]";
  const Shown plain = shown(host, messages);
  CHECK(plain.text == "<s>[user]<s>tel[assistant]");
  CHECK(std::count(plain.ids.begin(), plain.ids.end(), plain.ids[0]) == 1);  // one BOS
  {
    Host other(model.path(), "kv.context_tokens = 512\n", "{{ messages[0].content }}");
    const Shown without = shown(other, messages);  // the user's is none, so the model's is added
    CHECK(without.ids.size() > 4);
    CHECK(without.ids[0] == plain.ids[0]);
    CHECK(std::count(without.ids.begin(), without.ids.end(), plain.ids[0]) == 1);
  }
  Shown out;
  tarn_chat_options options = TARN_INIT(tarn_chat_options);
  options.no_generation_prompt = 1;
  options.tools_json = R"([{"name":"clock"}])";
  options.arguments_json = R"({"date":"today"})";
  REQUIRE(render(host, messages, &options, &out) == TARN_OK);
  CHECK(out.text == "<s>[user]<s>telclocktoday");

  u64 n_bytes = 0, n_ids = 0;
  const auto ask = [&](char* text, u64 text_max, u32* ids, u64 ids_max) {
    return tarn_chat_render(host.engine, messages.data(), messages.size(), nullptr, text, text_max,
                            &n_bytes, ids, ids_max, &n_ids);
  };
  char text[64] = "?";
  u32 ids[64] = {99};
  CHECK(ask(nullptr, 0, nullptr, 0) == TARN_OK);
  CHECK(n_bytes == plain.text.size());
  CHECK(n_ids == plain.ids.size());
  CHECK(ask(text, 5, ids, 64) == TARN_INVALID_REQUEST);
  CHECK(ask(text, 64, ids, 2) == TARN_INVALID_REQUEST);
  CHECK(text[0] == '?');
  CHECK(ids[0] == 99);
  CHECK(n_ids == plain.ids.size());
  CHECK(ask(text, 64, nullptr, 0) == TARN_OK);
  CHECK(std::string(text, n_bytes) == plain.text);
  CHECK(ask(nullptr, 64, nullptr, 0) == TARN_INVALID_REQUEST);
}

TEST_CASE("a sentence for each bad conversation, and the session stays as it was") {
  const SmallModel model("llama", "f16");
  constexpr char kStrict[] =
      "{% for m in messages %}{% if m.role != 'user' %}"
      "{{ raise_exception('Only user roles are supported!') }}{% endif %}{{ m.content }}"
      "{% endfor %}";
  Host host(model.path(), "kv.context_tokens = 512\n", kStrict);
  tarn_session* session = host.session();
  const std::string good = "[" + message("user", "bakeri") + "]";
  feed(session, good);
  const std::vector<u32> before = tokens_of(session);
  struct Case {
    const char* name;
    std::string messages;
    const char* says;
  };
  const Case cases[] = {
      {"no JSON", "[{\"role\":\"user\",]", "JSON"},
      {"empty", "", "JSON"},
      {"no list", R"({"role":"user"})", "array"},
      {"no object", R"(["user"])", "object"},
      {"unknown role", "[" + message("robot", "x") + "]", "Only user roles are supported!"},
      {"no role", R"([{"content":"x"}])", "Only user"},
      {"nothing", "[" + message("user", "") + "]", "writes nothing"},
      {"10 MB", "[" + message("user", std::string(10'000'000, 'x')) + "]", "context size"},
      {"longer than the context", "[" + message("user", std::string(20'000, '.')) + "]",
       "context size"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Shown out;
    const int32_t status =
        tarn_session_feed_chat(session, c.messages.data(), c.messages.size(), nullptr);
    CHECK(status == TARN_INVALID_REQUEST);
    const std::string sentence = tarn_error_text();
    CHECK(sentence.find(c.says) != std::string::npos);
    CHECK(tokens_of(session) == before);
  }
  CHECK(tarn_session_feed_chat(session, nullptr, 0, nullptr) == TARN_INVALID_REQUEST);
  tarn_chat_options options{};
  CHECK(tarn_session_feed_chat(session, good.data(), good.size(), &options) ==
        TARN_INVALID_REQUEST);  // no struct_size
  for (const bool are_tools : {false, true}) {
    options = TARN_INIT(tarn_chat_options);
    (are_tools ? options.tools_json : options.arguments_json) = "{[";
    CHECK(tarn_session_feed_chat(session, good.data(), good.size(), &options) ==
          TARN_INVALID_REQUEST);
  }
  CHECK(tokens_of(session) == before);
}

TEST_CASE("a conversation that neither memory nor context has room for is told its length") {
  const SmallModel model("llama", "f16");
  constexpr u64 kContext = 512;
  for (const u64 n_bytes : {u64{600}, u64{20'000}, u64{300'000}, u64{10'000'000}}) {
    CAPTURE(n_bytes);
    Host host(model.path(), "kv.context_tokens = 512\n", "chatml");
    const std::string messages = "[" + message("user", std::string(n_bytes, '.')) + "]";
    tarn_session* session = host.session();
    CHECK(tarn_session_feed_chat(session, messages.data(), messages.size(), nullptr) ==
          TARN_INVALID_REQUEST);
    tarn_error why = TARN_INIT(tarn_error);
    REQUIRE(tarn_error_get(&why) == TARN_OK);
    CHECK(why.reason == TARN_REASON_CONTEXT_TOO_LONG);
    CHECK(why.figures[0].value > kContext);
    CHECK(why.figures[0].value <= n_bytes + 100);
    CHECK(why.figures[1].value == kContext);
  }
}

TEST_CASE("the file's own template serves, and the plan has its memory") {
  const test::TempFile file("chat_test_own.gguf");
  const synth::SynthShape shape{
      .n_layers = 1, .n_vocab = 1024, .chat_template = "{{ messages[0].content }}!"};
  synth::synth_write(shape, *synth::parse_quant("f32"), 1, file.path(), 1);
  const std::string messages = "[" + message("user", "tel") + "]";
  struct Case {
    const char* name;
    const char* toml;
    const char* chat_template;
    u64 bytes_min, bytes_max;
    const char* text;  // nullptr: refused
  };
  const Case cases[] = {
      {"by the context", "kv.context_tokens = 1024\n", nullptr, kMiB + 256 * kKiB,
       kMiB + 288 * kKiB, "tel!"},
      {"as said", "kv.context_tokens = 1024\nchat.memory_bytes = '256KiB'\n", nullptr, 256 * kKiB,
       300 * kKiB, "tel!"},
      {"too little", "kv.context_tokens = 1024\nchat.memory_bytes = 4096\n", nullptr, 4 * kKiB,
       50 * kKiB, nullptr},
      {"another", "kv.context_tokens = 1024\n", "({{ messages[0].content }})", kMiB + 256 * kKiB,
       kMiB + 288 * kKiB, "(tel)"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Host host(file.path(), c.toml, c.chat_template);
    tarn_plan plan = TARN_INIT(tarn_plan);
    REQUIRE(tarn_engine_plan(host.engine, &plan) == TARN_OK);
    u64 n_bytes = 0;
    for (const tarn_region& region : plan.regions) {
      if (std::string(region.name) == "chat") n_bytes = region.bytes;
    }
    CHECK(n_bytes >= c.bytes_min);
    CHECK(n_bytes <= c.bytes_max);
    Shown out;
    CHECK(render(host, messages, nullptr, &out) ==
          (c.text != nullptr ? TARN_OK : TARN_INVALID_REQUEST));
    if (c.text != nullptr) CHECK(out.text == c.text);
    if (c.text == nullptr) {
      CHECK(std::string(tarn_error_text()).find("chat.memory_bytes") != std::string::npos);
    }
  }
}

TEST_CASE("without a template, or with one that is not known, the rest of the model works") {
  const SmallModel model("llama", "f16");
  const std::string messages = "[" + message("user", "x") + "]";
  Shown out;
  {
    Host host(model.path());
    CHECK(render(host, messages, nullptr, &out) == TARN_UNSUPPORTED);
    CHECK(std::string(tarn_error_text()).find("--chat-template") != std::string::npos);
    CHECK(host.log.find("conversations") == std::string::npos);
  }
  struct Own {
    const char* source;
    const char* says;
    bool is_told;  // as soon as it is opened
  };
  for (const Own& own : {Own{"{{ 1\n\n| no_such_filter }}", "no_such_filter (line 3)", false},
                         Own{"\n{% for m in messages", "a {% without its %} (line 2)", true}}) {
    const test::TempFile file("chat_test_unusable.gguf");
    synth::synth_write({.n_layers = 1, .n_vocab = 1024, .chat_template = own.source},
                       *synth::parse_quant("f32"), 1, file.path(), 1);
    Host host(file.path(), "kv.context_tokens = 512\n");
    CHECK(render(host, messages, nullptr, &out) == TARN_UNSUPPORTED);
    const std::string sentence = tarn_error_text();
    CHECK(sentence.find("--chat-template") != std::string::npos);
    CHECK(sentence.find(own.says) != std::string::npos);
    const bool is_told =
        host.log.find("conversations are refused: " + sentence) != std::string::npos;
    CHECK(is_told == own.is_told);
    CHECK(tarn_session_feed_text(host.session(), "x", 1, TARN_ADD_SPECIAL) == TARN_OK);
  }

  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = model.path().c_str();
  options.budget_bytes = u64{1} << 30;
  tarn_engine* engine = nullptr;
  const std::string too_long = "{" + std::string(chat::kSourceBytesMax, 'x');
  for (const char* wrong : {"chatmi", "\n{% for m in messages", too_long.c_str()}) {
    options.chat_template = wrong;
    CHECK(tarn_open(&options, &engine) == TARN_INVALID_CONFIG);
    CHECK(std::string(tarn_error_text()).find("template") != std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::chat_test
