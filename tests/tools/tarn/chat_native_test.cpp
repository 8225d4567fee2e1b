// Goal    tarn chat answers a conversation: in a pipe standard output has the answers alone; on a
//         terminal ^C ends an answer and not the program; a kept conversation goes on after a stop
//         and a kill; a full context is said, and nothing is dropped.
// Method  the program with the built-in model, in a pipe and on a terminal of its own.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tests/tools/tarn/terminal.h"
#include "tools/chat/conversation.h"
#include "tools/support/input.h"
#include "tools/synth/synth.h"

namespace tarn::chat_native_test {
namespace {

using Words = std::vector<std::string>;
using test::Ended;
using test::pipe_to_tarn;
using test::Terminal;

const std::string kSystem =
    "Log.\nThe heat of fan U5 is 724.\nThe level of filter S6 is 754.\nRosa works in bay kilo.";
const std::string kFirst = "What is the heat of fan U5?",
                  kSecond = "What is the level of filter S6?";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Words chat(const Words& more = {}) {
  Words words = {"chat", "--system", kSystem};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// An answer that takes seconds.
Words endless(const Words& more = {}) {
  Words words = chat({"--ignore-eos", "--stop", "never"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("in a pipe each line is a message, and standard output has the answers alone") {
  const Ended both = pipe_to_tarn(kFirst + "\n" + kSecond + "\n", chat());
  CAPTURE(both.err);
  CHECK(both.exit_code == 0);
  CHECK(both.err == "");
  CHECK(both.out == " 724.\n 754.\n");
  // Without its line break at the end, and with what is no message.
  const Ended more =
      pipe_to_tarn("/help\n\n" + kFirst + "\n/undo\n/reset\n/nothing\n/save\n/stats\n" + kFirst +
                       "\n\"\"\"\n" + kSecond + "\n\"\"\"\n/context",
                   chat());
  CHECK(more.exit_code == 0);
  CHECK(more.out == " 724.\n 724.\n 754.\n");
  CAPTURE(more.err);
  CHECK(has(more.err, "/context  how full"));
  CHECK(has(more.err, "messages left: 1"));
  CHECK(has(more.err, "begins anew"));
  CHECK(has(more.err, "tarn: no command '/nothing'"));
  CHECK(has(more.err, "begin with --session NAME"));
  CHECK(has(more.err, "[stop] loaded in "));
  CHECK(has(more.err, "\nmessages: 5, tokens: "));
}

TEST_CASE("an answer that meets the end of the context says so, and the next message is refused") {
  const Words words = endless({"-c", "128"});
  const Ended one = pipe_to_tarn(kFirst + "\n", words);
  CAPTURE(one.err);
  CHECK(one.exit_code == 0);
  CHECK(has(one.err, "length: the context of 128 tokens is full: /undo, /reset"));
  const Ended two = pipe_to_tarn(kFirst + "\n" + kSecond + "\n", words);
  CAPTURE(two.err);
  CHECK(two.exit_code == 78);
  CHECK(two.out == one.out);
  const Ended undone = pipe_to_tarn(kFirst + "\n/undo\n" + kFirst + "\n", words);
  CHECK(undone.out == one.out + one.out);
  const Ended by_n = pipe_to_tarn(kFirst + "\n", endless({"-n", "2"}));
  CHECK(by_n.out.size() < one.out.size());
  CHECK(has(by_n.err, "length: the answer has the 2 tokens of -n"));
}

TEST_CASE("tarn run --chat answers as the first message of tarn chat is answered") {
  const test::TempFile file("question.txt");
  tools::write_file(file.path(), kFirst.data(), kFirst.size());
  const std::string out = pipe_to_tarn(kFirst + "\n", chat()).out;
  for (const Words& prompt : {Words{"-p", kFirst}, Words{"-f", file.path()}}) {
    Words words = {"run", "--chat", "--system", kSystem};
    words.insert(words.end(), prompt.begin(), prompt.end());
    const Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.out + "\n" == out);
    words.insert(words.end(), {"--json", "-c", "128"});
    CHECK(has(test::run_tarn(words).out, "\"text\": \" 724.\""));
  }
  for (const Words& words : {Words{"run", "--chat"}, Words{"run", "-p", "a", "--system", "b"},
                             Words{"run", "-p", "a", "--chat", "--parse-special"},
                             Words{"run", "-p", "a", "--chat", "--session", "b"}}) {
    const Ended ended = test::run_tarn(words);
    CHECK(ended.exit_code == 64);
    CHECK(has(ended.err, "--chat"));
  }
}

TEST_CASE("what cannot be a conversation is refused with a sentence") {
  struct Case {
    const char* name;
    std::string input;
    Words words;
    int exit_code;
    std::string says;
  };
  const std::string huge(3'000'000, 'x');
  const Case cases[] = {
      {"an end inside a message", "\"\"\"\na\n", {}, 78, "end it with"},
      {"a template that is no file", "", {"--chat-template", "/nowhere"}, 74, "/nowhere"},
      {"a template without end", "", {"--chat-template", "/dev/zero"}, 78, "128 KiB"},
      {"no tokens", "", {"-n", "0"}, 64, "at least"},
      {"a session without a folder", "", {"--session", "a"}, 64, "--store DIR"},
      {"a name that leaves the folder", "", {"--session", "../a"}, 64, "letters"},
      {"a message longer than the context", huge + "\n", {}, 78, ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const Ended ended = pipe_to_tarn(c.input, chat(c.words));
    CAPTURE(ended.err);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(ended.out == "");
    CHECK(has(ended.err, c.says));
  }
}

TEST_CASE("a kept conversation goes on, and is deleted with its session") {
  const test::TempDir store("chat_kept");
  const Words kept = {"--session", "log", "--store", store.path()};
  const std::string file = store.path() + "/log.chat.json";
  const Ended first = pipe_to_tarn(kFirst + "\n/save\n", chat(kept));
  CAPTURE(first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(has(first.err, "session log: new"));
  CHECK(has(first.err, "3 messages in " + file));
  struct stat facts {};
  REQUIRE(stat(file.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  Words words = {"chat"};
  words.insert(words.end(), kept.begin(), kept.end());
  const Ended second = pipe_to_tarn(kSecond + "\n/stats\n", words);
  CAPTURE(second.err);
  CHECK(second.out == " 754.\n");
  CHECK(has(second.err, "tokens restored"));
  const auto messages = tools::messages_from_json(tools::read_file(file), file);
  CHECK(messages == std::vector<tools::ChatMessage>{{"system", kSystem},
                                                    {"user", kFirst},
                                                    {"assistant", " 724."},
                                                    {"user", kSecond},
                                                    {"assistant", " 754."}});
  CHECK(test::run_tarn({"store", "rm", "log", "--store", store.path()}).exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("a conversation goes on from its messages where its session cannot be restored") {
  const test::TempDir store("chat_upgrade");
  const Words kept = {"--session", "log", "--store", store.path()};
  REQUIRE(pipe_to_tarn(kFirst + "\n", chat(kept)).exit_code == 0);
  const auto go_on = [&](Words words) {
    words.insert(words.begin(), "chat");
    words.insert(words.end(), kept.begin(), kept.end());
    return pipe_to_tarn(kSecond + "\n", words);
  };
  const Ended other_type = go_on({"--kv-type", "q8_0"});
  CAPTURE(other_type.err);
  CHECK(other_type.exit_code == 0);
  CHECK(other_type.out == " 754.\n");
  CHECK(has(other_type.err, "was saved with kv.type = f16; this engine has q8_0"));
  CHECK(has(other_type.err, "computed anew from its tokens"));
  const test::TempFile model("chat_other.gguf");
  synth::SynthOptions options;
  options.path = model.path();
  synth::synth_write(options);
  const Ended other_model =
      go_on({"-m", model.path(), "--chat-template", "chatml", "-n", "2", "-c", "2048"});
  CAPTURE(other_model.err);
  CHECK(other_model.exit_code == 0);
  CHECK(has(other_model.err, "session log is computed anew from its messages"));
  CHECK(has(other_model.err, "was saved with model = "));
  CHECK(has(other_model.err, "7 messages in "));
}

TEST_CASE("a session of tarn run is no conversation, and a damaged list of messages is refused") {
  const test::TempDir store("chat_refused");
  Words words = {"run", "-p", "Log.", "-n", "4", "--session", "a", "--store", store.path()};
  REQUIRE(test::run_tarn(words).exit_code == 0);
  const Words kept = {"--session", "a", "--store", store.path()};
  const Ended foreign = pipe_to_tarn(kFirst + "\n", chat(kept));
  CHECK(foreign.exit_code == 78);
  CHECK(has(foreign.err, "not one of tarn chat"));
  tools::write_file(store.path() + "/a.chat.json", "[{]", 3);
  const Ended damaged = pipe_to_tarn(kFirst + "\n", chat(kept));
  CHECK(damaged.exit_code == 78);
  CHECK(has(damaged.err, "a.chat.json: not a list of messages"));
}

TEST_CASE("a killed conversation has the messages before the one that was being answered") {
  const test::TempDir store("chat_killed");
  const Words kept = {"--session", "log", "--store", store.path()};
  {
    Terminal terminal(chat(kept));
    REQUIRE(terminal.shows("> "));
    terminal.type(kFirst + "\n");
    CHECK(terminal.shows(" 724."));
    CHECK(terminal.shows("> "));
    terminal.send(SIGKILL);
    CHECK(terminal.end() == 128 + SIGKILL);
  }
  {
    Terminal terminal(endless(kept));
    REQUIRE(terminal.shows("> "));
    terminal.type(kSecond + "\n");
    CHECK(terminal.shows(" 754.\r\n"));
    terminal.send(SIGKILL);
    CHECK(terminal.end() == 128 + SIGKILL);
  }
  const Ended after = pipe_to_tarn("/context\n" + kSecond + "\n", chat(kept));
  CAPTURE(after.err);
  CHECK(after.exit_code == 0);
  CHECK(has(after.err, "messages: 3, tokens: "));
  CHECK(after.out == " 754.\n");
}

TEST_CASE("on a terminal ^C ends an answer, twice at the prompt the program, and ^D ends it too") {
  Terminal terminal(endless());
  REQUIRE(terminal.shows("> "));
  terminal.type(kFirst + "\n");
  REQUIRE(terminal.shows(" 724.\r\n"));
  terminal.type("\x03");
  CHECK(terminal.shows("cancelled"));
  REQUIRE(terminal.shows("> "));
  terminal.type("/context\n");
  CHECK(terminal.shows("messages: 3, tokens: "));
  REQUIRE(terminal.shows("> "));
  terminal.type("\"\"\"\n");
  REQUIRE(terminal.shows("... "));
  terminal.type("\x03");
  CHECK(terminal.shows("^C again, or ^D, leaves"));
  REQUIRE(terminal.shows("> "));
  terminal.type("/undo\n");
  CHECK(terminal.shows("messages left: 1"));
  REQUIRE(terminal.shows("> "));
  terminal.type("\x03");
  REQUIRE(terminal.shows("leaves"));
  REQUIRE(terminal.shows("> "));
  terminal.type("\x03");
  CHECK(terminal.end() == 128 + SIGINT);
  CHECK_FALSE(has(terminal.seen(), "\x1b"));  // it is a dumb one

  Terminal other(chat());
  REQUIRE(other.shows("> "));
  other.type("\x04");
  CHECK(other.end() == 0);
}

TEST_CASE("a signal ends a kept conversation when it is saved, also in an answer") {
  const test::TempDir store("chat_ended");
  Terminal terminal(endless({"--session", "log", "--store", store.path()}));
  REQUIRE(terminal.shows("> "));
  terminal.type(kFirst + "\n");
  REQUIRE(terminal.shows(" 724.\r\n"));
  terminal.send(SIGTERM);
  CHECK(terminal.end() == 128 + SIGTERM);
  CHECK(has(terminal.seen(), "3 messages in "));
}

TEST_CASE("the line behind an answer is dim where there are colours, unless NO_COLOR is set") {
  for (const bool is_coloured : {true, false}) {
    CAPTURE(is_coloured);
    Terminal terminal(chat(), {"TERM=xterm", is_coloured ? "NO_COLOR=" : "NO_COLOR=1"});
    REQUIRE(terminal.shows("> "));
    terminal.type(kFirst + "\n");
    CHECK(terminal.shows(" tokens reused"));
    REQUIRE(terminal.shows("> "));
    terminal.type("half a line\x03");
    CHECK(terminal.shows("^C again, or ^D, leaves"));
    REQUIRE(terminal.shows("> "));
    terminal.type("\x04");
    CHECK(terminal.end() == 0);
    CHECK(has(terminal.seen(), "\x1b[2m[") == is_coloured);
  }
}

}  // namespace
}  // namespace tarn::chat_native_test
