// Goal    a run that takes long says what it will take before it begins, in memory and, when it has
//         begun, in time; a signal ends it as a signal does, and a kept session is saved before.
// Method  the recall model on a document that takes many seconds, on a terminal, stopped when its
//         progress is seen.
#include <doctest/doctest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::stop_native_test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a long run says what it takes, and how far it is") {
  const test::Stopped stopped =
      test::stop_tarn({"run", "--sample", "recall", "-c", "65536"}, "tokens, ", SIGINT);
  CAPTURE(stopped.err);
  CAPTURE(stopped.out);
  REQUIRE(stopped.said);
  CHECK(stopped.signal == SIGINT);
  CHECK(has(stopped.err, " s left"));
  // Not kept back until the end, which did not come.
  CHECK(has(stopped.out, "reserved at start"));
  CHECK(has(stopped.out, "\ntime "));
  const size_t plan = stopped.err.find("plan: ");
  CHECK(has(stopped.err.substr(0, stopped.err.find('\n')), " of memory, budget "));
  CHECK(plan < stopped.err.find("loading"));
}

TEST_CASE("an answer as JSON is waited for with progress, too, and nothing of it is in the JSON") {
  const test::TempFile ids("long_prompt.ids");
  std::string text;
  for (u32 i = 0; i < 60'000; ++i) text += "5 ";
  tools::write_file(ids.path(), text.data(), text.size());
  const test::Stopped stopped = test::stop_tarn(
      {"run", "--sample", "recall", "--prompt-ids", ids.path(), "-c", "65536", "--json"},
      "tokens, ", SIGINT);
  CAPTURE(stopped.err);
  CAPTURE(stopped.out);
  REQUIRE(stopped.said);
  CHECK(has(stopped.err, " of 60000 tokens, "));
  CHECK(has(stopped.err, " s left"));
  CHECK(stopped.out.empty());
}

TEST_CASE("measurements that take long say how far they are, as text and for JSON") {
  const test::TempFile text("long_text.txt");
  std::string words;
  for (u32 i = 0; i < 6000; ++i) words += "Sensor X" + std::to_string(i % 90) + " is hot. ";
  tools::write_file(text.path(), words.data(), words.size());
  struct Case {
    const char* name;
    std::vector<std::string> words;
    const char* says;
  };
  const Case kCases[] = {
      {"verify", {"verify", "--text", text.path(), "-c", "8192", "--json"}, " of 7): read "},
      {"verify --reuse",
       {"verify", "--reuse", "--text", text.path(), "--passage-tokens", "1024", "--json"},
       "prompt 1 of 4, "},
      {"eval", {"eval", "--text", text.path(), "--json"}, "read "},
      {"calibrate", {"calibrate", "-c", "8192"}, "layers, with "},
      {"an answer as JSON",
       {"run", "-p", "Log.", "-n", "8000", "--ignore-eos", "--json"},
       "answering: "},
  };
  for (const Case& each : kCases) {
    const std::string name = each.name;
    CAPTURE(name);
    const test::Stopped stopped = test::stop_tarn(each.words, each.says, SIGINT);
    CAPTURE(stopped.err);
    CHECK(stopped.said);
    CHECK(stopped.out.empty());
  }
}

TEST_CASE("with -v all of the plan is said before anything is loaded") {
  const test::Ended ended = test::run_tarn({"run", "-p", "Log.", "-n", "1", "-v"});
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.starts_with("region "));
}

TEST_CASE("a signal ends a run that keeps its session, when it is saved") {
  const test::TempDir store("stopped");
  for (const int signal : {SIGINT, SIGTERM}) {
    CAPTURE(signal);
    const test::Stopped stopped = test::stop_tarn(
        {"run", "--sample", "recall", "-c", "65536", "--store", store.path(), "--session", "long"},
        "tokens, ", signal);
    CAPTURE(stopped.err);
    REQUIRE(stopped.said);
    CHECK(stopped.signal == signal);
    CHECK(has(stopped.err, "the same command continues"));
    CHECK(has(test::run_tarn({"store", "--store", store.path()}).out, "cut off in a prompt"));
  }
}

}  // namespace
}  // namespace tarn::stop_native_test
