// Goal    a run that is killed when its answer is saved and not yet handed over gives the same
//         answer when its command is repeated, and its session holds the question once; a run that
//         ended in order is asked anew; kills at any moment lose no answer and ask nothing twice.
// Method  the program as a shell starts it, on the built-in model. A full pipe stops it between
//         its save and its answer; then delays drawn at random, TARN_ANSWER_KILLS of them.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::repeat_native_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kSaved = " tokens kept";

// Starts the program with these descriptors; its standard error goes to a file.
pid_t start(const std::vector<std::string>& arguments, int out, const std::string& err_path) {
  const int err = open(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const pid_t pid = test::start_tarn(arguments, out, err);
  close(err);
  return pid;
}

// A pipe without a reader and without room.
struct FullPipe {
  FullPipe() {
    REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    const std::string bytes(4096, 'x');
    while (write(ends[1], bytes.data(), bytes.size()) > 0) {
    }
    REQUIRE(fcntl(ends[1], F_SETFL, 0) == 0);  // and whoever writes waits
  }
  ~FullPipe() {
    close(ends[0]);
    close(ends[1]);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  std::array<int, 2> ends{};
};

std::string value_in(const std::string& json, const std::string& key) {
  const size_t at = json.find("\"" + key + "\": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size() + 4;
  // Lists end with their bracket, texts and numbers with their line.
  const size_t end = json[begin] == '[' ? json.find(']', begin) : json.find('\n', begin);
  return json.substr(begin, end - begin);
}

struct World {
  World(u32 n_words, const char* context) : context_tokens(context) {
    std::string text;
    test::Random random(1);
    constexpr const char* kWords[] = {"mixer", "pump", "valve", "heat", "works", "bay", "724"};
    for (u32 i = 0; i < n_words; ++i) text += std::string(kWords[random.below(7)]) + " ";
    tools::write_file(prompt.path(), text.data(), text.size());
  }
  std::vector<std::string> words(const test::TempDir& store) const {
    return {"run",
            "-f",
            prompt.path(),
            "-n",
            "16",
            "-c",
            context_tokens.c_str(),
            "--json",
            "--ignore-eos",
            "--session",
            "a/b \x01c",
            "--store",
            store.path()};
  }
  test::Ended run(const test::TempDir& store) const { return test::run_tarn(words(store)); }
  const std::string context_tokens;
  const test::TempFile prompt{"repeat_prompt.txt"}, err{"repeat.err"};
};

TEST_CASE("killed between the save and the answer, the repeated command answers, once") {
  const World world(400, "2048");
  const test::TempDir whole("repeat_whole"), killed("repeat_killed");
  const test::Ended want = world.run(whole);
  CAPTURE(want.err);
  REQUIRE(want.exit_code == 0);
  const FullPipe pipe;
  for (u32 n_kills = 0; n_kills < 2; ++n_kills) {
    const pid_t pid = start(world.words(killed), pipe.ends[1], world.err.path());
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (tools::read_file(world.err.path()).find(kSaved) == std::string::npos) {
      REQUIRE(Clock::now() < end);
      usleep(1000);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, WNOHANG) == 0);  // it waits for the pipe
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, &status, 0) == pid);
  }
  const test::Ended again = world.run(killed);
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(value_in(again.out, "text") == value_in(want.out, "text"));
  CHECK(value_in(again.out, "tokens") == value_in(want.out, "tokens"));
  CHECK(value_in(again.out, "n_kept") == value_in(want.out, "n_kept"));
  // In order it is another question; in a folder without a kill the answer is the same.
  const test::Ended asked_anew = world.run(killed), want_anew = world.run(whole);
  CAPTURE(asked_anew.err);
  REQUIRE(asked_anew.exit_code == 0);
  CHECK(value_in(asked_anew.out, "tokens") == value_in(want_anew.out, "tokens"));
  CHECK(value_in(asked_anew.out, "n_kept") == value_in(want_anew.out, "n_kept"));
  CHECK(std::stoi(value_in(asked_anew.out, "n_kept")) >
        2 * std::stoi(value_in(want.out, "n_kept")) - 64);
}

TEST_CASE("an answer that cannot be written is given by the same command later") {
  const World world(40, "1024");
  const test::TempDir store("repeat_full"), whole("repeat_full_whole");
  if (!fs::exists("/dev/full")) return;
  CHECK(test::run_tarn(world.words(store), "/dev/full").exit_code == 74);
  const test::Ended again = world.run(store), want = world.run(whole);
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(value_in(again.out, "tokens") == value_in(want.out, "tokens"));
  CHECK(value_in(again.out, "n_kept") == value_in(want.out, "n_kept"));
}

TEST_CASE("killed at any moment, the repeated command gives the answer, and asks nothing twice") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const char* asked = std::getenv("TARN_ANSWER_KILLS");
  const u64 n_wanted = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 4;
  // Twice the question would not fit.
  const World world(asked != nullptr ? 6077 : 600, asked != nullptr ? "8192" : "1024");
  const test::TempDir whole("repeat_any_whole");
  const auto begin = Clock::now();
  const test::Ended want = world.run(whole);
  const auto took_us = static_cast<u64>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count());
  CAPTURE(want.err);
  REQUIRE(want.exit_code == 0);
  u64 n_runs = 0, n_killed = 0, n_saved = 0, n_wrong = 0;
  const test::TempFile out("repeat.out");
  for (; n_killed < n_wanted; ++n_runs) {
    REQUIRE(n_runs < 20 * n_wanted);
    const test::TempDir store("repeat_any");
    const int to_file = open(out.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const pid_t pid = start(world.words(store), to_file, world.err.path());
    close(to_file);
    // Every second one when it has saved, and a moment later.
    if (n_runs % 2 == 0) {
      usleep(static_cast<useconds_t>(random.below(took_us)));
    } else {
      int status = 0;
      while (waitpid(pid, &status, WNOHANG) == 0 &&
             tools::read_file(world.err.path()).find(kSaved) == std::string::npos) {
        usleep(100);
      }
      usleep(static_cast<useconds_t>(random.below(2000)));
    }
    kill(pid, SIGKILL);
    int status = 0;
    static_cast<void>(waitpid(pid, &status, 0));
    const bool was_killed = WIFSIGNALED(status);
    n_killed += was_killed;
    n_saved += was_killed && tools::read_file(world.err.path()).find(kSaved) != std::string::npos;
    if (!was_killed) continue;  // it had ended: the same command would ask anew
    const test::Ended again = world.run(store);
    const bool is_right = again.exit_code == 0 &&
                          value_in(again.out, "tokens") == value_in(want.out, "tokens") &&
                          value_in(again.out, "n_kept") == value_in(want.out, "n_kept");
    CAPTURE(again.err);
    CHECK(is_right);
    n_wrong += !is_right;
  }
  MESSAGE(n_killed, " of ", n_runs, " runs killed, ", n_saved, " of them with their answer saved; ",
          n_wrong, " repeats refused or of other tokens");
}

}  // namespace
}  // namespace tarn::repeat_native_test
