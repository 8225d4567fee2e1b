// Goal    Every row of the table of request fields is served, ignored or refused as it says, at
//         every endpoint: below, at and above both bounds, with every wrong type, null, and twice.
//         The order of a body's members changes nothing.
// Method  For each row a body that is right but for that field; the error must be 400 and name it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tools/tarnd/body_reader.h"

namespace tarn::daemon::fields_test {
namespace {

constexpr Endpoint kEndpoints[] = {kChat,       kCompletions,   kTokenize,
                                   kDetokenize, kApplyTemplate, kIngest};

std::string value_of_required(const Field& field) {
  switch (field.type) {
    case FieldType::messages:
      return R"([{"role":"user","content":"x"}])";
    case FieldType::ids:
      return "[1]";
    default:
      return R"("x")";
  }
}

// The endpoint's required fields, without `but`.
std::string base_of(Endpoint endpoint, std::string_view but) {
  std::string members;
  for (const Field& field : fields()) {
    if ((field.endpoints & endpoint) == 0 || !field.is_required || field.name == but) continue;
    members += '"' + std::string(field.name) + "\":" + value_of_required(field) + ",";
  }
  const bool needs_logprobs = but == "top_logprobs";
  if (needs_logprobs) members += R"("logprobs":true,)";
  if (endpoint == kIngest && but != "content" && but != "tokens") members += R"("content":"x",)";
  return members;
}

std::string member(std::string_view name, const std::string& value) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return '"' + std::string(name) + "\":" + value;
  return '"' + std::string(name.substr(0, dot)) + "\":{" + member(name.substr(dot + 1), value) +
         "}";
}

struct Read {
  int status = 200;
  HttpError error;
  Body body;
};
Read read(Endpoint endpoint, const std::string& members) {
  std::string text = "{" + members + "}";
  Read read;
  if (auto error = read_body(endpoint, text, read.body)) {
    read.status = error->status;
    read.error = *error;
  }
  return read;
}

struct Trial {
  std::string value;
  bool is_right;
};

std::string number_text(f64 value) {
  char text[40];
  std::snprintf(text, sizeof text, std::floor(value) == value ? "%.0f" : "%.17g", value);
  return text;
}

std::string text_of_bytes(f64 n) { return '"' + std::string(static_cast<size_t>(n), 'x') + '"'; }
std::string list_of(const std::string& item, f64 n) {
  std::string list = "[";
  for (f64 i = 0; i < n; ++i) list += (i > 0 ? "," : "") + item;
  return list + "]";
}

void add_bounds(const Field& field, std::vector<Trial>& trials) {
  const bool is_large = field.most > 1e6;  // the body's own length bounds it
  if (field.type == FieldType::integer) {
    const i64 least = field.integer_least, most = field.integer_most;
    trials.push_back(
        {least == INT64_MIN ? "-9223372036854775809" : std::to_string(least - 1), false});
    trials.push_back({std::to_string(least), true});
    trials.push_back({std::to_string(most), true});
    trials.push_back({most == INT64_MAX ? "9223372036854775808" : std::to_string(most + 1), false});
    for (const char* beyond : {"1e400", "-1e400", "1e19", "-1e19", "18446744073709551616"})
      trials.push_back({beyond, false});
  }
  if (field.type == FieldType::number) {
    trials.push_back({number_text(field.least - 1), false});
    trials.push_back({number_text(field.least), true});
    trials.push_back({number_text(field.most), true});
    trials.push_back({number_text(field.most + 1), false});
    trials.push_back({"1e400", false});
    trials.push_back({"-1e400", false});
  }
  if (field.type == FieldType::text) {
    if (field.least > 0) trials.push_back({text_of_bytes(field.least - 1), false});
    trials.push_back({text_of_bytes(std::max(field.least, 1.0)), true});
    if (!is_large) trials.push_back({text_of_bytes(field.most), field.kind == FieldKind::served});
    if (!is_large) trials.push_back({text_of_bytes(field.most + 1), false});
  }
  const bool is_list = field.type == FieldType::texts || field.type == FieldType::ids ||
                       field.type == FieldType::passages || field.type == FieldType::messages ||
                       field.type == FieldType::prompt;
  if (is_list) {
    const char* const item = field.type == FieldType::ids        ? "1"
                             : field.type == FieldType::messages ? R"({"role":"user","content":""})"
                                                                 : R"("x")";
    if (field.least > 0) trials.push_back({list_of(item, field.least - 1), false});
    trials.push_back({list_of(item, std::max(field.least, 1.0)), true});
    if (!is_large) trials.push_back({list_of(item, field.most), true});
    if (!is_large) trials.push_back({list_of(item, field.most + 1), false});
  }
}

void add_types(const Field& field, std::vector<Trial>& trials) {
  using Type = FieldType;
  const Type type = field.type;
  const bool takes_text = type == Type::text || type == Type::texts || type == Type::prompt;
  trials.push_back({"null", !field.is_required});
  trials.push_back({"true", type == Type::boolean});
  trials.push_back({"1.5", type == Type::number && field.least <= 1.5 && field.most >= 1.5});
  trials.push_back({R"("y")", takes_text});
  trials.push_back({R"({"y":1})", type == Type::json || type == Type::object});
  trials.push_back({R"([["y"]])", false});
  if (takes_text) trials.push_back({R"("y\u0000z")", !field.is_c_text});
  if (type == Type::biases) {
    trials.push_back({R"({"7":1,"8":false})", true});
    trials.push_back({"[[7,1],[8,false]]", true});
    trials.push_back({R"({"7":101})", false});
    trials.push_back({R"({"-7":1})", false});
    trials.push_back({"[[7]]", false});
    trials.push_back({"[[7,1,1]]", false});
    trials.push_back({"[7,1]", false});
  }
  if (type == Type::ids) {
    trials.push_back({"[-1]", false});
    trials.push_back({"[4294967295]", true});
    trials.push_back({"[4294967296]", false});
    trials.push_back({"[1.5]", false});
  }
  if (type == Type::prompt) {
    trials.push_back({"[1,2]", true});
    trials.push_back({"[[1,2],[3]]", true});
    trials.push_back({"[[1],2]", false});
    trials.push_back({R"([1,"x"])", false});
    trials.push_back({R"(["x",1])", false});
    trials.push_back({R"(["x",[1]])", false});
    trials.push_back({"[[]]", false});
    trials.push_back({"[-1]", false});
  }
  if (type == Type::texts) {
    trials.push_back({R"("")", false});
    trials.push_back({text_of_bytes(kStopBytesMax), true});
    trials.push_back({text_of_bytes(kStopBytesMax + 1), false});
  }
}

std::vector<Trial> trials_of(const Field& field) {
  std::vector<Trial> trials;
  if (field.kind == FieldKind::ignored) {
    for (const char* value : {"null", "true", "1e300", R"("y")", R"({"y":1})", "[[1]]"}) {
      trials.push_back({value, true});
    }
    return trials;
  }
  if (field.kind == FieldKind::refused) {
    const std::string_view harmless = field.harmless;
    for (const char* value : {"null", "[]", R"("")"}) trials.push_back({value, true});
    trials.push_back({"{}", field.type != FieldType::json});
    for (const char* value : {"77", R"("y")", R"([{"y":1}])"}) trials.push_back({value, false});
    trials.push_back({"true", harmless == "true"});
    trials.push_back({"false", harmless != "true" && harmless != "null"});
    std::istringstream values{std::string(harmless)};
    for (std::string value; std::getline(values, value, '|');) {
      const bool is_literal = value == "true" || value == "null" || value.find_first_of("01") < 2;
      trials.push_back({is_literal ? value : '"' + value + '"', true});
    }
    return trials;
  }
  add_bounds(field, trials);
  add_types(field, trials);
  return trials;
}

TEST_CASE("every field takes what its row says, and no more") {
  u64 n_trials = 0;
  for (const Endpoint endpoint : kEndpoints) {
    for (const Field& field : fields()) {
      if ((field.endpoints & endpoint) == 0) continue;
      const std::string base = base_of(endpoint, field.name);
      for (const Trial& trial : trials_of(field)) {
        const bool is_text = std::string_view(field.name) == "content";
        const bool is_one_of_two = endpoint == kIngest && (is_text || field.type == FieldType::ids);
        if (is_one_of_two && trial.value == "null") continue;  // then neither is there
        CAPTURE(int{endpoint});
        CAPTURE(field.name);
        CAPTURE(trial.value.substr(0, 60));
        const Read done = read(endpoint, base + member(field.name, trial.value));
        CHECK(done.status == (trial.is_right ? 200 : 400));
        if (done.status == 200) continue;
        const bool is_json = trial.value.find("e400") == std::string::npos;  // JSON's reader ends
        if (is_json) CHECK(done.error.param.starts_with(field.name));
        CHECK(done.error.message.size() < 200);  // it does not repeat the value
        ++n_trials;
      }
    }
  }
  CHECK(n_trials > 500);
}

TEST_CASE("a field that is there twice is refused, whatever it is") {
  for (const Endpoint endpoint : kEndpoints) {
    for (const Field& field : fields()) {
      if ((field.endpoints & endpoint) == 0) continue;
      CAPTURE(field.name);
      const std::string once = member(field.name, "null");
      const std::string base = base_of(endpoint, field.name);
      CHECK(read(endpoint, base + once + "," + once).status == 400);
    }
  }
  CHECK(read(kChat, R"("x":1,"x":1,"messages":[{"role":"user","content":""}])").status == 400);
}

TEST_CASE("a missing required field is named") {
  for (const Endpoint endpoint : kEndpoints) {
    for (const Field& field : fields()) {
      if ((field.endpoints & endpoint) == 0 || !field.is_required) continue;
      std::string base = base_of(endpoint, field.name);
      base += R"("zzz":1)";
      const Read done = read(endpoint, base);
      CHECK(done.status == 400);
      CHECK(done.error.param == field.name);
    }
  }
}

TEST_CASE("defaults are those of the Body, and values arrive") {
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  const Read plain = read(kChat, messages);
  CHECK(plain.body.temperature == 0.8);
  CHECK(plain.body.max_tokens == -1);
  const Read set = read(kChat, messages + R"(,"temperature":0,"max_completion_tokens":7,"top_k":-1,
      "stop":["a","b"],"seed":9007199254740991,"n":8,"stream":true,"user":{"a":[1]},
      "stream_options":{"include_usage":true},"tarn":{"session":"s","background":true},
      "logit_bias":{"5":-100,"6":false},"repeat_last_n":2.0)");
  REQUIRE(set.status == 400);  // a session has one answer
  const Read one = read(kChat, messages + R"(,"temperature":0,"max_completion_tokens":7,"top_k":-1,
      "stop":["a","b"],"seed":9007199254740991,"stream":true,"user":{"a":[1]},
      "stream_options":{"include_usage":true},"tarn":{"session":"s","background":true},
      "logit_bias":{"5":-100,"6":false},"repeat_last_n":2.0)");
  REQUIRE(one.status == 200);
  CHECK(one.body.temperature == 0);
  CHECK(one.body.max_tokens == 7);
  CHECK(one.body.top_k == -1);
  CHECK(one.body.stops == std::vector<std::string>{"a", "b"});
  CHECK(one.body.seed == 9007199254740991);
  CHECK(one.body.stream);
  CHECK(one.body.include_usage);
  CHECK(one.body.session == "s");
  CHECK(one.body.background);
  REQUIRE(one.body.biases.size() == 2);
  CHECK(one.body.biases[0].bias == -100);
  CHECK(std::isinf(one.body.biases[1].bias));
  CHECK(one.body.repeat_last_n == 2);
}

TEST_CASE("of two names of a field the first row wins, in any order") {
  const std::string base = R"("prompt":"x",)";
  struct Case {
    const char* members;
    i64 max_tokens;
    f64 repeat_penalty;
  };
  constexpr Case kCases[] = {
      {R"("max_tokens":3,"max_completion_tokens":5)", 5, 1},
      {R"("max_completion_tokens":5,"max_tokens":3)", 5, 1},
      {R"("n_predict":7,"max_tokens":3)", 3, 1},
      {R"("max_tokens":3,"n_predict":7)", 3, 1},
      {R"("n_predict":7,"max_completion_tokens":0,"max_tokens":3)", 0, 1},
      {R"("max_completion_tokens":null,"n_predict":7)", 7, 1},
      {R"("n_predict":7,"max_completion_tokens":null,"max_tokens":null)", 7, 1},
      {R"("repetition_penalty":2,"repeat_penalty":1.5)", -1, 1.5},
      {R"("repeat_penalty":1.5,"repetition_penalty":2)", -1, 1.5},
      {R"("repetition_penalty":2)", -1, 2},
  };
  for (const Case& each : kCases) {
    CAPTURE(each.members);
    const Read done = read(kCompletions, base + each.members);
    REQUIRE(done.status == 200);
    CHECK(done.body.max_tokens == each.max_tokens);
    CHECK(done.body.repeat_penalty == each.repeat_penalty);
  }
  CHECK(read(kCompletions, base + R"("max_completion_tokens":5,"n_predict":-2)").error.param ==
        "n_predict");
}

TEST_CASE("every int64 is a seed, exactly") {
  const std::string base = R"("prompt":"x","seed":)";
  for (const i64 seed : {i64{-2}, i64{0}, (i64{1} << 53) + 1, INT64_MAX, INT64_MIN}) {
    CHECK(read(kCompletions, base + std::to_string(seed)).body.seed == seed);
  }
  CHECK(read(kCompletions, base + "1e3").body.seed == 1000);
  const Read beyond = read(kCompletions, base + "18446744073709551615");
  CHECK(beyond.error.message.find("-9223372036854775808 to 9223372036854775807") !=
        std::string::npos);
}

TEST_CASE("an error names the field as it was sent, and what it may be") {
  struct Case {
    Endpoint endpoint;
    const char* members;
    const char* param;
    const char* words;
  };
  constexpr Case kCases[] = {
      {kCompletions, R"("prompt":"x","repeat_penalty":0.001)", "repeat_penalty", "0.01 to 100"},
      {kCompletions, R"("prompt":"x","repetition_penalty":0)", "repetition_penalty", "0.01 to 100"},
      {kCompletions, R"("prompt":[-1])", "prompt", "0 to 99"},
      {kCompletions, R"("prompt":[100])", "prompt", "0 to 99"},
      {kCompletions, R"("prompt":[[1],[4294967296]])", "prompt", "0 to 99"},
      {kCompletions, R"("prompt":"x","logit_bias":{"100":1})", "logit_bias", "0 to 99"},
      {kCompletions, R"("prompt":"x","logit_bias":[[-5,1]])", "logit_bias", "0 to 99"},
      {kCompletions, R"("prompt":"x","logit_bias":{"99999999999999999999":1})", "logit_bias",
       "0 to 99"},
      {kDetokenize, R"("tokens":[1e300])", "tokens", "0 to 99"},
      {kIngest, R"("name":"a","tokens":[100])", "tokens", "0 to 99"},
      {kIngest, R"("name":"a\u0000b","content":"x")", "name", "U+0000"},
      {kCompletions, R"("prompt":"x","stop":["F\u0000zzz"])", "stop", "U+0000"},
      {kCompletions, R"("prompt":"x","tarn":{"session":"k2\u0000other"})", "tarn.session",
       "U+0000"},
      {kCompletions, R"("prompt":"x","tarn":{"select":"full\u0000"})", "tarn.select", "U+0000"},
      {kCompletions, R"("prompt":"x","model":"m\u0000")", "model", "U+0000"},
      {kCompletions, R"("prompt":"x","guided_json":{"type":"object"})", "guided_json", "leave it"},
      {kCompletions, R"("prompt":"x","skip_special_tokens":false)", "skip_special_tokens",
       "leave it"},
      {kChat,
       R"("messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"messages":[]})",
       "chat_template_kwargs.messages", "leave it"},
      {kApplyTemplate,
       R"("messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"bos_toke\u006e":""})",
       "chat_template_kwargs.bos_token", "leave it"},
  };
  for (const Case& each : kCases) {
    CAPTURE(each.members);
    std::string text = "{" + std::string(each.members) + "}";
    Body body;
    body.n_vocab = 100;
    const auto error = read_body(each.endpoint, text, body);
    REQUIRE(error.has_value());
    CHECK(error->status == 400);
    CHECK(error->param == each.param);
    CHECK(error->message.find(each.words) != std::string::npos);
  }
}

TEST_CASE("choices of all prompts are at most 8") {
  CHECK(read(kCompletions, R"("prompt":["a","b"],"n":4)").status == 200);
  CHECK(read(kCompletions, R"("prompt":["a","b"],"n":5)").status == 400);
  CHECK(read(kIngest, R"("name":"a","content":"b","tokens":[1])").status == 400);
  CHECK(read(kIngest, R"("name":"a")").status == 400);
}

}  // namespace
}  // namespace tarn::daemon::fields_test
