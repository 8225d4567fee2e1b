// Goal    how the program reads and prints text: "-" is standard input; lines may end with CRLF; a
//         terminal gets the end of the last line, a pipe the text alone; a template with a zero
//         byte is refused; the date is UTC; a prompt has no EOS behind it, and BOS twice is told.
// Method  the program with the built-in model and with a copy of its file that adds EOS.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/folders.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tests/tools/tarn/terminal.h"
#include "tools/support/input.h"
#include "tools/support/utc.h"

namespace tarn::text_native_test {
namespace {

using Words = std::vector<std::string>;
using test::Ended;
using test::pipe_to_tarn;
using test::run_tarn;

const std::string kSystem = "Log.\nThe heat of fan U5 is 724.\nThe level of filter S6 is 754.";
const std::string kFirst = "What is the heat of fan U5?",
                  kSecond = "What is the level of filter S6?";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void write(const test::TempFile& file, const std::string& text) {
  tools::write_file(file.path(), text.data(), text.size());
}

TEST_CASE("- is standard input, once") {
  const test::TempFile messages("text_messages.json"), ids("text_ids.txt");
  write(messages, R"([{"role": "user", "content": "Hi"}])");
  const Ended by_p = run_tarn({"run", "-p", kFirst, "-n", "3", "--json"});
  CHECK(by_p.exit_code == 0);
  struct Row {
    Words words;
    std::string input, out;  // `out`: a part of standard output
  };
  const Row rows[] = {
      {{"tokenize", "-f", "-"}, "The heat", "The"},
      {{"template", "--chat-template", "plain", "--messages", "-"},
       R"([{"role": "user", "content": "Hi"}])",
       "Hi"},
      {{"template", "--chat-template", "-", "--messages", messages.path()}, "<{{ 1 + 1 }}>", "<2>"},
      {{"run", "-f", "-", "-n", "3"}, kFirst, run_tarn({"run", "-p", kFirst, "-n", "3"}).out},
      {{"run", "--prompt-ids", "-", "-n", "1", "--json"}, "5 6 7", "\"prompt_tokens\": 3"},
      {{"run", "--chat", "--system", kSystem, "-f", "-"}, kFirst, " 724."},
  };
  for (const Row& row : rows) {
    CAPTURE(row.words[0]);
    CAPTURE(row.words[1]);
    const Ended ended = pipe_to_tarn(row.input, row.words);
    CAPTURE(ended.err);
    CAPTURE(ended.out);
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.out, row.out));
    CHECK_FALSE(row.out.empty());
  }
  const Ended twice = pipe_to_tarn("x", {"template", "--chat-template", "-", "--messages", "-"});
  CHECK(twice.exit_code == 64);
  CHECK(has(twice.err, "standard input can be read once"));
}

TEST_CASE("lines of a pipe may end with CRLF") {
  const Words chat = {"chat", "--system", kSystem};
  const Ended unix_lines = pipe_to_tarn(
      kFirst + "\n/help\n/undo\n\"\"\"\n" + kSecond + "\n\"\"\"\n/context\n" + kFirst, chat);
  const Ended dos_lines = pipe_to_tarn(kFirst + "\r\n/help\r\n/undo\r\n\"\"\"\r\n" + kSecond +
                                           "\r\n\"\"\"\r\n/context\r\n" + kFirst + "\r",
                                       chat);
  CHECK(unix_lines.exit_code == 0);
  CHECK(unix_lines.out == " 724.\n 754.\n 724.\n");
  CHECK(dos_lines.exit_code == 0);
  CHECK(dos_lines.out == unix_lines.out);
  CHECK(dos_lines.err == unix_lines.err);
}

TEST_CASE("a terminal gets the end of the last line, a pipe the text alone") {
  const Words words = {"run", "--chat", "--system", kSystem, "-p", kFirst};
  const Ended piped = run_tarn(words);
  CHECK(piped.out == " 724.");
  CHECK(has(piped.err, "\n[stop] loaded"));
  test::Terminal terminal(words);
  CHECK(terminal.end() == 0);
  CAPTURE(terminal.seen());
  CHECK(has(terminal.seen(), " 724.\r\n[stop] loaded"));

  const test::TempFile messages("text_messages.json"), source("text_template.jinja");
  write(messages, R"([{"role": "user", "content": "a\u001b[2Jb\u009bc"}])");
  write(source, "<{{ messages[0].content }}>");
  const Words render = {"template", "--chat-template", source.path(), "--messages",
                        messages.path()};
  CHECK(run_tarn(render).out ==
        "<a\x1b[2Jb\u009b"
        "c>");
  test::Terminal shown(render);
  CHECK(shown.end() == 0);
  CHECK(has(shown.seen(), "<a\\x1b[2Jb\\xc2\\x9bc>\r\n"));
  // JSON is the same everywhere, and has no such character.
  const Ended json = run_tarn(
      {"template", "--chat-template", source.path(), "--messages", messages.path(), "--json"});
  CHECK(has(json.out, R"(<a\u001B[2Jb\u009bc>)"));
}

TEST_CASE("a chat template with a zero byte is refused, and one that is broken is named") {
  const test::TempFile messages("text_messages.json"), source("text_template.jinja");
  write(messages, R"([{"role": "user", "content": "Hi"}])");
  const Words commands[] = {
      {"template", "--chat-template", source.path(), "--messages", messages.path()},
      {"run", "--chat", "--chat-template", source.path(), "-p", "Hi", "-n", "1"},
      {"chat", "--chat-template", source.path()}};
  for (const Words& words : commands) {
    CAPTURE(words[0]);
    write(source, std::string("{{ messages[0].content }}\0{{ 1 }}", 33));
    const Ended cut = run_tarn(words);
    CHECK(cut.exit_code == 78);
    CHECK(has(cut.err, "zero byte"));
    write(source, "{% if x %}");
    const Ended broken = run_tarn(words);
    CHECK(broken.exit_code == 78);
    CHECK(has(broken.err, "an if without its endif (line 1)"));
  }
}

TEST_CASE("a template that asks for the date gets it in UTC") {
  const test::TempFile messages("text_messages.json"), source("text_template.jinja");
  write(messages, R"([{"role": "user", "content": "Hi"}])");
  write(source, "{{ strftime_now('%Y-%m-%dT%H') }}");
  setenv("TZ", "Pacific/Kiritimati", 1);  // 14 hours ahead
  const std::string before = tools::utc_now();
  const std::string out =
      run_tarn({"template", "--chat-template", source.path(), "--messages", messages.path()}).out;
  const std::string after = tools::utc_now();
  unsetenv("TZ");
  CHECK((before.starts_with(out) || after.starts_with(out)));
  CHECK(out.size() == 13);
}

std::string tokens_text(const Ended& ended) {
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(json.IsObject());
  std::string text = std::to_string(json["prompt_tokens"].GetUint64()) + ":";
  for (const auto& token : json["tokens"].GetArray()) text += " " + std::to_string(token.GetUint());
  return text;
}

TEST_CASE("a file that adds EOS: a prompt is continued, not ended; BOS twice is told once") {
  const test::TempFile model("text_eos.gguf");
  const std::string own = test::source_folder() + "/tools/builtin/logbook.gguf";
  std::string bytes = tools::read_file(own);
  const std::string key = "tokenizer.ggml.add_eos_token";
  const size_t at = bytes.find(key);
  REQUIRE(at != std::string::npos);
  REQUIRE(bytes.at(at + key.size() + 4) == '\0');
  bytes[at + key.size() + 4] = '\1';
  write(model, bytes);
  const auto run = [&](const std::string& path, const std::string& prompt) {
    return run_tarn(
        {"run", "-m", path, "-p", prompt, "--parse-special", "-n", "6", "--ignore-eos", "--json"});
  };
  CHECK(tokens_text(run(model.path(), kFirst)) == tokens_text(run(own, kFirst)));
  const auto lines = [](const Ended& ended) {
    return std::count(ended.out.begin(), ended.out.end(), '\n');
  };
  const Ended with = run_tarn({"tokenize", "-m", model.path(), "-p", "The", "--add-special"});
  const Ended without = run_tarn({"tokenize", "-m", own, "-p", "The", "--add-special"});
  CHECK(lines(with) == lines(without) + 1);
  const std::string bos = without.out.substr(0, without.out.find('\n'));
  const size_t quote = bos.find('"');
  const std::string text = bos.substr(quote + 1, bos.rfind('"') - quote - 1);
  const Ended twice = run(own, text + kFirst);
  CAPTURE(twice.err);
  CHECK(twice.exit_code == 0);
  const size_t told = twice.err.find("begins with BOS twice");
  CHECK(told != std::string::npos);
  CHECK(twice.err.find("begins with BOS twice", told + 1) == std::string::npos);
  CHECK_FALSE(has(run(own, kFirst).err, "BOS twice"));
}

}  // namespace
}  // namespace tarn::text_native_test
