// Goal    help can be read where it is shown: no line is longer than a terminal is wide, or than 80
//         columns where there is none, and the program alone shows it. Every command that takes a
//         model takes the built-in one where none is named.
// Method  --help of every command that --help lists, into a pipe and to terminals of two widths;
//         each of those with -m, without a model, with the built-in one's file, and with no name.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "runtime/config/config.h"
#include "tests/support/folders.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::help_native_test {
namespace {

using Words = std::vector<std::string>;

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

size_t longest(const std::string& text) {
  size_t n = 0;
  for (const std::string& line : lines_of(text)) n = std::max(n, line.size());
  return n;
}

// The command and those below it, as its help names them.
void find_commands(const Words& command, std::vector<Words>& all) {
  all.push_back(command);
  Words words = command;
  words.push_back("--help");
  bool is_listed = false;
  for (const std::string& line : lines_of(test::run_tarn(words).out)) {
    const bool is_name = is_listed && line.starts_with("  ") && !line.starts_with("   ");
    is_listed = line == "Subcommands:" || (is_listed && line.starts_with("  "));
    if (!is_name) continue;
    Words below = command;
    below.push_back(line.substr(2, line.find(' ', 2) - 2));
    find_commands(below, all);
  }
}

std::vector<Words> every_command() {
  std::vector<Words> all;
  find_commands({}, all);
  for (const Words& last : {Words{"run"}, Words{"synth"}, Words{"store", "unpack"}}) {
    REQUIRE(std::ranges::count(all, last) == 1);
  }
  return all;
}

// What the program writes on a terminal of so many columns.
std::string on_terminal(Words words, u16 n_columns) {
  const int ours = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(ours >= 0);
  REQUIRE(grantpt(ours) == 0);
  REQUIRE(unlockpt(ours) == 0);
  winsize size{};
  size.ws_col = n_columns;
  REQUIRE(ioctl(ours, TIOCSWINSZ, &size) == 0);
  const int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(theirs >= 0);
  words.insert(words.begin(), TARN_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(theirs, STDOUT_FILENO);
    execv(TARN_PROGRAM, argv.data());
    _exit(127);
  }
  close(theirs);
  std::string text;
  char bytes[4096];
  // It ends with an error when the program has closed its side.
  for (ssize_t n = 0; (n = read(ours, bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  close(ours);
  std::erase(text, '\r');
  return status == 0 ? text : "";
}

TEST_CASE("no line of help is longer than 80 columns where there is no terminal") {
  for (Words words : every_command()) {
    words.push_back("--help");
    CAPTURE(words[0]);
    const test::Ended ended = test::run_tarn(words);
    CHECK(ended.exit_code == 0);
    CHECK(ended.out.size() > 100);
    CHECK(longest(ended.out) <= 80);
  }
}

TEST_CASE("lines of help are as long as the terminal is wide") {
  for (const u16 n_columns : {u16{60}, u16{120}}) {
    for (Words words : {Words{}, Words{"run"}, Words{"verify"}, Words{"store"}}) {
      words.push_back("--help");
      CAPTURE(words[0]);
      const size_t n = longest(on_terminal(words, n_columns));
      CHECK(n <= n_columns);
      CHECK(n > n_columns - 20);  // a word shorter, at most
    }
  }
}

TEST_CASE("the program alone shows its help") {
  const test::Ended alone = test::run_tarn({});
  CHECK(alone.exit_code == 0);
  CHECK(alone.err == "");
  CHECK(alone.out == test::run_tarn({"--help"}).out);
}

// A command line for each command that takes a model; `is_measured`: what it prints are times, or
// depends on the model's name.
struct WithModel {
  Words words;
  bool is_measured = false;
  std::string input = "";
};

const std::string kModel = test::source_folder() + "/tools/builtin/logbook.gguf";
const std::string kText = test::source_folder() + "/CONTRIBUTING.md";

std::vector<WithModel> all_with_model(const std::string& index_file, const std::string& store) {
  return {{{"run", "-p", "Log.", "-n", "4"}},
          {{"chat", "-n", "4"}, true, "Log.\n"},
          {{"template", "--chat-template", "plain", "--messages", "/dev/stdin"},
           false,
           "[{\"role\": \"user\", \"content\": \"a\"}]"},
          {{"ingest", kText, "--store", store}, true},
          {{"plan", "-c", "256", "--budget", "1GiB"}},
          {{"inspect"}},
          {{"tokenize", "-p", "Log."}},
          {{"eval", "--text", kText, "-c", "8192"}},
          {{"verify", "--text", kText, "-c", "600", "--needles", "0", "--steps", "4"}, true},
          {{"calibrate", "-c", "601", "--config", index_file}, true}};
}

// Calibrating refuses what others disturbed.
test::Ended run_again(const WithModel& one) {
  for (u32 i = 0;; ++i) {
    test::Ended ended = test::pipe_to_tarn(one.input, one.words);
    if (i == 4 || ended.err.find("disturbed the measurement") == std::string::npos) return ended;
  }
}

TEST_CASE("every command that takes a model takes the built-in one where none is named") {
  const test::TempFile index("index.toml");
  const std::string toml = "[select]\ncode_bits = 2\nsink_tokens = 4\nlocal_tokens = 8\n";
  tools::write_file(index.path(), toml.data(), toml.size());
  const test::TempDir store("help_store");
  const std::vector<WithModel> all = all_with_model(index.path(), store.path());
  for (Words words : every_command()) {
    Words help = words;
    help.push_back("--help");
    const bool takes_one = test::run_tarn(help).out.find("-m,--model") != std::string::npos;
    // The file names its model.
    const bool is_of_a_file = words == Words{"store", "unpack"};
    const bool is_listed = std::ranges::any_of(
        all, [&](const WithModel& one) { return Words{one.words.front()} == words; });
    CAPTURE(words.empty() ? "tarn" : words.back());
    CHECK(is_listed == (takes_one && !is_of_a_file));
  }
  for (const WithModel& one : all) {
    CAPTURE(one.words[0]);
    const test::Ended without = run_again(one);
    CAPTURE(without.err);
    CHECK(without.exit_code == 0);
    CHECK(without.out != "");
    CHECK(without.out.find("/proc/") == std::string::npos);
    Words words = one.words;
    words.insert(words.end(), {"-m", kModel});
    if (!one.is_measured) CHECK(test::pipe_to_tarn(one.input, words).out == without.out);
    words.back() = "";
    const test::Ended unset = test::run_tarn(words);
    CHECK(unset.exit_code == 64);
    CHECK(unset.err.find("the value is empty") != std::string::npos);
  }
}

// The help of a command in one line.
std::string help_of(const std::string& command) {
  std::string text;
  for (const char c : test::run_tarn({command, "--help"}).out) {
    if (c != '\n' && c != ' ') text += c;
    if ((c == '\n' || c == ' ') && !text.ends_with(' ')) text += ' ';
  }
  return text;
}

TEST_CASE("the defaults that help tells are those of the code") {
  const Config config;
  const std::string kv_type = kKvTypeNames[static_cast<u64>(config.kv_type)];
  struct Case {
    const char* command;
    const char* context;  // what -c is where it is not given
  };
  const Case kCases[] = {
      {"run", "what the prompt and -n need"},
      {"chat", "the model's, at most 8192"},
      {"ingest", "what the longest FILE needs"},
      {"plan", "the model's"},
      {"eval", "what the text or the longest prompt needs"},
      {"verify", "the model's, at most 8192; with --reuse what a prompt needs"},
      {"calibrate", "the model's, at most 4096, and more on fast boxes"},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.command);
    const std::string help = help_of(c.command);
    const auto says = [&](const std::string& words) {
      return help.find(words) != std::string::npos;
    };
    CHECK(says(std::string("plan KV for (default: ") + c.context + ")"));
    CHECK(says("number format of K and V (default " + kv_type + ")"));
    CHECK(says(std::string("where the model runs (default ") + config.device.data() + ")"));
    CHECK(says(std::string("set of the kernels (default ") + config.isa.data() + ")"));
    CHECK(says(std::string("how files are read (default ") + config.io.data() + ")"));
    CHECK(says("against swapping (default try)"));
  }
  CHECK(help_of("plan").find("(engine.sessions_max) (default " +
                             std::to_string(config.sessions_max) + ")") != std::string::npos);
}

}  // namespace
}  // namespace tarn::help_native_test
