// Goal    `tarn eval logbook` counts right and wrong answers, by kind and by length, and writes
//         every answer down.
// Method  the recall model, which is always right, on a log book of its own documents; a wrong
//         answer is planted among the right ones, and lines stand in an order that makes the
//         session cut back, go on and begin anew.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/recall.h"

namespace tarn::eval_logbook_native_test {
namespace {

std::string line_of(u64 seed, const std::string& kind, u64 n_tokens, const std::string& prompt,
                    const std::string& answer) {
  return "{\"seed\":" + std::to_string(seed) + ",\"kind\":\"" + kind +
         "\",\"tokens\":" + std::to_string(n_tokens) + ",\"prompt\":\"" + prompt +
         "\",\"answer\":\"" + answer + "\"}\n";
}

u64 asked(const rapidjson::Document& json, const char* kind, const char* length) {
  return json["accuracy"][kind][length]["asked"].GetUint64();
}
u64 right(const rapidjson::Document& json, const char* kind, const char* length) {
  return json["accuracy"][kind][length]["right"].GetUint64();
}

TEST_CASE("a log book of recall documents") {
  const test::TempFile model("recall.gguf"), book("book.jsonl"), answers("answers.jsonl");
  synth::recall_write({.type = kernels::TensorType::f16}, model.path());
  std::string text;
  for (const u32 n_tokens : {128U, 500U}) {
    const auto document = synth::recall_document(n_tokens, n_tokens);
    const auto& questions = document.questions;
    REQUIRE(questions.size() >= 4);
    for (size_t i = 0; i < 4; ++i) {
      text += line_of(n_tokens, i % 2 == 0 ? "even" : "odd", n_tokens,
                      document.text + " " + questions[i].key, " " + questions[i].answer);
    }
    // The same prompt again, and an answer that is not there.
    text += line_of(n_tokens, "even", n_tokens, document.text + " " + questions[0].key,
                    " " + questions[0].answer);
    text += line_of(n_tokens, "wrong", n_tokens, document.text + " " + questions[0].key,
                    " " + questions[1].answer);
  }
  tools::write_file(book.path(), text.data(), text.size());

  const test::Ended ended = test::run_tarn({"eval", "-m", model.path(), "logbook", book.path(),
                                            "--json", "--answers-out", answers.path()});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(!json.HasParseError());
  CHECK(asked(json, "even", "all") == 6);
  CHECK(right(json, "even", "all") == 6);
  CHECK(asked(json, "even", "128") == 3);
  CHECK(right(json, "odd", "512") == 2);
  CHECK(asked(json, "wrong", "all") == 2);
  CHECK(right(json, "wrong", "all") == 0);
  const std::string written = tools::read_file(answers.path());
  CHECK(std::count(written.begin(), written.end(), '\n') == 12);
  CHECK(written.find("\"index\":11,\"kind\":\"wrong\"") != std::string::npos);
  CHECK(written.find("\"selected\":true") == std::string::npos);  // full attention
}

TEST_CASE("a log book by selection says how many of its answers selected, and warns of none") {
  const test::TempFile model("recall.gguf"), book("book.jsonl"), config("select.toml");
  synth::recall_write({.type = kernels::TensorType::f16}, model.path());
  const auto document = synth::recall_document(500, 500);
  std::string text;
  for (size_t i = 0; i < 4; ++i) {
    const auto& question = document.questions[i];
    text += line_of(500, "hop", 500, document.text + " " + question.key, " " + question.answer);
  }
  tools::write_file(book.path(), text.data(), text.size());
  const std::string toml =
      "[select]\nmethod = \"pq\"\ncode_bits = 2\nsink_tokens = 4\nlocal_tokens = 16\nk_tokens = "
      "32\n"
      "context_min = 1\nindex_delay_tokens = 1\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  for (const bool selects : {false, true}) {
    CAPTURE(selects);
    std::vector<std::string> words = {"eval", "-m", model.path(), "logbook", book.path(), "--json"};
    const std::vector<std::string> how = selects
                                             ? std::vector<std::string>{"--config", config.path()}
                                             : std::vector<std::string>{"--select", "pq"};
    words.insert(words.end(), how.begin(), how.end());
    test::Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    rapidjson::Document json;
    json.Parse(ended.out.c_str());
    const auto& all = json["accuracy"]["hop"]["all"];
    // An answer is one token, which a prompt's last row gives; more tokens have steps that select.
    const bool has_steps = all["select_steps"].GetUint64() > 0;
    CHECK((all["selected"].GetUint64() > 0) == has_steps);
    CHECK((all["kv_read_ratio"].GetDouble() < 1.0) == has_steps);
    if (!selects) CHECK_FALSE(has_steps);
    CHECK((ended.err.find("no step selected") != std::string::npos) == !has_steps);
    words.erase(words.begin() + 5);
    ended = test::run_tarn(words);
    CHECK(ended.out.find("selected") < ended.out.find("KV read"));
  }
}

TEST_CASE("`tarn run` says whether its steps selected") {
  const test::TempFile config("select.toml");
  const std::string toml =
      "[select]\nmethod = \"pq\"\ncode_bits = 2\nsink_tokens = 4\nlocal_tokens = 8\nk_tokens = 16\n"
      "context_min = 1\nindex_delay_tokens = 4\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  std::string text = "log";
  for (u32 i = 0; i < 100; ++i) text += " The pressure of pump K7 is 482.";
  std::vector<std::string> words = {"run", "-p", text, "-n", "12", "--ignore-eos"};
  struct Case {
    std::vector<std::string> how;
    bool selects, warns;
  };
  const Case cases[] = {{{}, false, false},
                        {{"--select", "pq"}, false, true},
                        {{"--config", config.path()}, true, false}};
  for (const Case& c : cases) {
    std::vector<std::string> line = words;
    line.insert(line.end(), c.how.begin(), c.how.end());
    test::Ended ended = test::run_tarn(line);
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK((ended.err.find("no step selected") != std::string::npos) == c.warns);
    const std::string steps = c.selects ? " in 8 steps, 0." : "pq selected in no step";
    CHECK((ended.err.find(steps) != std::string::npos) == (c.selects || c.warns));
    line.push_back("--json");
    ended = test::run_tarn(line);
    rapidjson::Document json;
    json.Parse(ended.out.c_str());
    REQUIRE(!json.HasParseError());
    CHECK(json["select_steps"].GetUint64() == (c.selects ? 8 : 0));  // of 11
    CHECK((json["kv_read_ratio"].GetDouble() < 1) == c.selects);
  }
}

TEST_CASE("prose is measured by what the model takes it for") {
  const test::TempFile model("recall.gguf"), book("book.jsonl");
  synth::recall_write({.type = kernels::TensorType::f16}, model.path());
  const auto document = synth::recall_document(7, 128);
  const auto& question = document.questions[0];
  const std::string prompt = document.text + " " + question.key;
  const auto perplexity = [&](const std::string& answer) {
    const std::string text = line_of(7, "prose", 128, prompt, " " + answer);
    tools::write_file(book.path(), text.data(), text.size());
    const test::Ended ended =
        test::run_tarn({"eval", "-m", model.path(), "logbook", book.path(), "--json"});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    rapidjson::Document json;
    json.Parse(ended.out.c_str());
    CHECK(json["prose_tokens"].GetUint64() == 1);
    return json["perplexity"].GetDouble();
  };
  // The answer leads every other word by 6 in its logit (tools/synth/recall.h).
  CHECK(perplexity(question.answer) < 1.1);
  CHECK(perplexity(document.questions[1].answer) > 100);
}

}  // namespace
}  // namespace tarn::eval_logbook_native_test
