// Goal    a conversation whose record is lost is not begun anew without a word: the run warns, its
//         JSON says what was found under the name, and --session-must-exist refuses to begin.
// Method  the program as a shell starts it, on a tiny model; between two runs the store's file is
//         damaged in ways that each lose the session: flipped bits all over, both labels, a cut.
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/synth/synth.h"

namespace tarn::lost_session_native_test {
namespace {

using test::Ended;
using test::run_tarn;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct World {
  World() {
    synth::SynthOptions options;
    options.path = model.path();
    synth::synth_write(options);
  }
  Ended say(const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"run",       "-m", model.path(), "-p",         text,
                                      "-n",        "12", "-c",         "512",        "--ignore-eos",
                                      "--session", "s",  "--store",    store.path(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tarn(words);
  }
  std::string file() const { return store.path() + "/sessions.tarn"; }
  // Of its bytes by what `change` makes of them.
  void damage(const std::function<void(std::string&)>& change) {
    std::string bytes = tools::read_file(file());
    change(bytes);
    tools::write_file(file(), bytes.data(), bytes.size());
  }
  const test::TempFile model{"lost_session.gguf"};
  const test::TempDir store{"lost_session"};
};

std::string state_in(const Ended& ended) {
  const std::string key = "\"state\": \"";
  const size_t at = ended.out.find(key);
  if (at == std::string::npos) return "no state";
  return ended.out.substr(at + key.size(), ended.out.find('"', at + key.size()) - at - key.size());
}

const std::string kWarning = "tarn warning: ";

TEST_CASE("JSON says what was found under the session's name") {
  World world;
  Ended ended = world.say("Once upon a time there was a rook");
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.out, "\"name\": \"s\""));
  CHECK(state_in(ended) == "new");
  CHECK_FALSE(has(ended.out, "\"n_kept\": 0"));
  ended = world.say(" and then", {"--session-must-exist"});
  CHECK(ended.exit_code == 0);
  CHECK(state_in(ended) == "continued");
  CHECK_FALSE(has(ended.err, kWarning));
  // Without a name there is nothing to say.
  ended = run_tarn({"run", "-m", world.model.path(), "-p", "A", "-n", "1", "--json"});
  CHECK(ended.exit_code == 0);
  CHECK_FALSE(has(ended.out, "\"session\""));
  CHECK(run_tarn({"run", "-p", "A", "-n", "1", "--session-must-exist"}).exit_code == 64);
}

TEST_CASE("a session that was stopped while it read is cut off, and goes on") {
  const test::TempFile ids("cut_off.ids");
  std::string text;
  for (u32 i = 0; i < 16'000; ++i) text += "5 ";
  tools::write_file(ids.path(), text.data(), text.size());
  const test::TempDir store("cut_off");
  const std::vector<std::string> words = {
      "run", "--sample", "recall", "--prompt-ids", ids.path(), "-c",      "16384",
      "-n",  "1",        "--json", "--session",    "s",        "--store", store.path()};
  const test::Stopped stopped = test::stop_tarn(words, "tokens, ", SIGINT);
  CAPTURE(stopped.err);
  REQUIRE(stopped.said);
  const Ended ended = run_tarn(words);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(state_in(ended) == "cut_off");
}

TEST_CASE("a session of which KV alone is lost is repaired, and says so") {
  World world;
  std::string text = "Once upon a time";
  for (u32 i = 0; i < 40; ++i) text += " there was a rook";
  REQUIRE(world.say(text).exit_code == 0);
  // The magic of each record that holds a group; the manifest is of kind 3.
  world.damage([](std::string& bytes) {
    for (size_t at = 0; (at = bytes.find("TARNREC1", at)) != std::string::npos; ++at) {
      if (bytes[at + 12] == 1) bytes[at] ^= 1;
    }
  });
  const Ended ended = world.say(" and then", {"--session-must-exist"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(state_in(ended) == "repaired");
  CHECK(has(ended.err, kWarning));
  CHECK(has(ended.err, "saved sessions may be lost, or computed anew in part"));
}

TEST_CASE("a session that was lost with its record is begun anew with a warning, or refused") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  struct Case {
    const char* name;
    std::function<void(std::string&)> change;
    const char* warning;
  };
  const Case cases[] = {
      {"both labels",
       [](std::string& bytes) {
         bytes[100] ^= 4;
         bytes[4096 + 100] ^= 4;
       },
       "no readable label"},
      {"every head",
       [](std::string& bytes) {
         for (size_t at = 0; (at = bytes.find("TARNREC1", at)) != std::string::npos; ++at) {
           bytes[at + 100] ^= 1;
         }
       },
       "unreadable when it was opened"},
      {"all behind the labels", [](std::string& bytes) { bytes.resize(2 * 4096); },
       "unreadable when it was opened"},
      {"all but a few bytes", [](std::string& bytes) { bytes.resize(100); }, "no readable label"},
      {"a bit of each sector",
       [&](std::string& bytes) {
         for (size_t at = 0; at < bytes.size(); at += 4096) {
           const u64 bit = random.below(u64{8} * 4096);
           bytes[at + bit / 8] ^= static_cast<char>(1 << bit % 8);
         }
       },
       ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    World world;
    REQUIRE(world.say("Once upon a time there was a rook").exit_code == 0);
    world.damage(c.change);
    const std::string damaged = tools::read_file(world.file());
    Ended ended = world.say(" and then", {"--session-must-exist"});
    CHECK(ended.exit_code == 78);
    CHECK(ended.out.empty());
    CHECK(has(ended.err, kWarning));
    CHECK(has(ended.err, c.warning));
    CHECK(has(ended.err, "--session-must-exist was given"));
    tools::write_file(world.file(), damaged.data(), damaged.size());
    ended = world.say(" and then");
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(has(ended.err, kWarning));
    CHECK(state_in(ended) == "new");
    CHECK(state_in(world.say(" again")) == "continued");
  }
}

}  // namespace
}  // namespace tarn::lost_session_native_test
