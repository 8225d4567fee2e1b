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

namespace tarn {
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
}  // namespace tarn
