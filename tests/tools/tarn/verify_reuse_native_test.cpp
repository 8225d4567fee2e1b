// Goal    `tarn verify --reuse` tells placed KV from KV that is computed anew by facts that stand
//         across passages' borders: with nothing computed none is found, with a tenth nearly all.
//         Its record is what --recompute auto takes, with this model and these settings alone.
// Method  the built-in model on lines of its own kind, made here; the program as a shell starts it.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/folders.h"
#include "tests/support/seed.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::verify_reuse_native_test {
namespace {

const std::string kModel = test::source_folder() + "/tools/builtin/logbook.gguf";

std::string log_lines(u64 seed, u32 n) {
  constexpr const char* kMachines[] = {"pump", "valve", "boiler", "fan", "motor", "tank"};
  constexpr const char* kValues[] = {"heat", "speed", "load", "level", "flow", "pressure"};
  test::Random random(seed);
  std::string text;
  for (u32 i = 0; i < n; ++i) {
    text += std::string("The ") + kValues[random.below(6)] + " of " + kMachines[random.below(6)] +
            " " + static_cast<char>('A' + random.below(26)) + std::to_string(1 + random.below(9)) +
            " is " + std::to_string(100 + random.below(900)) + ".\n";
  }
  return text;
}

class World {
 public:
  World() {
    write(text_, log_lines(test::seed_from_environment(), 400));
    write(first_, log_lines(test::seed_from_environment() + 1, 20));
    write(large_pages_, "kv.page_tokens = 256\n");
    write(second_, log_lines(test::seed_from_environment() + 2, 20));
  }
  test::Ended verify(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"verify",     "--reuse",          "-m",  kModel,     "--text",
                                    text_.path(), "--lock",           "off", "--record", record(),
                                    "--json",     "--passage-tokens", "128"};
    all.insert(all.end(), more.begin(), more.end());
    return test::run_tarn(all);
  }
  // The reply to a prompt with two chunks.
  rapidjson::Document ask(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {
        "run",     "-m",           kModel, "--chunk",         first_.path(),
        "--chunk", second_.path(), "-p",   "The heat of fan", "-n",
        "2",       "--lock",       "off",  "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const test::Ended ended = test::run_tarn(all);
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    rapidjson::Document json;
    json.Parse(ended.out.c_str());
    REQUIRE(json.IsObject());
    return json;
  }
  const std::string& record() const { return record_.path(); }
  const std::string& large_pages() const { return large_pages_.path(); }

 private:
  static void write(const test::TempFile& file, const std::string& text) {
    tools::write_file(file.path(), text.data(), text.size());
  }
  test::TempFile text_{"log.txt"}, first_{"first.txt"}, second_{"second.txt"},
      record_{"record.toml"}, large_pages_{"pages.toml"};
};

bool flag(const rapidjson::Document& json, const char* name) { return json[name].GetBool(); }

constexpr u32 kFacts = 10 * 5;  // of prompts, and borders between their passages

TEST_CASE("facts across borders are found with some tokens anew, and not without any") {
  const World world;
  const test::Ended ended = world.verify({"--percents", "10,0,30", "--prompts", "10"});
  CAPTURE(ended.out);
  CAPTURE(ended.err);
  CHECK(ended.err.find(" min") != std::string::npos);
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(json.IsObject());
  const auto& trials = json["trials"];
  REQUIRE(trials.Size() == 4);
  const auto right = [&](u32 i) { return trials[i]["facts_right"].GetUint(); };
  const auto kl = [&](u32 i) { return trials[i]["kl_mean"].GetDouble(); };
  REQUIRE(trials[0]["facts"].GetUint() == kFacts);
  CHECK(right(0) >= kFacts * 7 / 10);
  CHECK(right(1) <= kFacts / 5);
  CHECK(right(2) + kFacts / 5 >= right(0));
  CHECK(kl(1) > 2 * kl(2));
  CHECK(trials[1]["verdict"].GetString() == std::string("failed"));
  for (u32 i = 1; i < 4; ++i) {
    const f64 n_placed = trials[i]["placed"].GetDouble();
    const f64 n_recomputed = trials[i]["recomputed"].GetDouble();
    CHECK(100 * n_recomputed / (n_placed + n_recomputed) ==
          doctest::Approx(trials[i]["percent"].GetDouble()).epsilon(0.05));
  }
}

TEST_CASE("a record is what auto takes, with its model and settings alone") {
  const World world;
  const test::Ended ended = world.verify({"--percents", "20,100", "--kl-max", "10", "--top1-min",
                                          "0", "--needles", "0", "--prompts", "1"});
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(tools::read_file(world.record()).find("reuse.recompute_percent = 20\n") !=
        std::string::npos);
  const auto own = world.ask({"--config", world.record()});
  CHECK(flag(own, "approximate"));
  CHECK(flag(own, "verified"));
  CHECK(own["reused"]["placed"].GetUint() > 0);
  const auto less = world.ask({"--config", world.record(), "--recompute", "0.1"});
  CHECK(flag(less, "approximate"));
  CHECK(!flag(less, "verified"));
  const auto unknown = world.ask({"--recompute", "0.5"});
  CHECK(!flag(unknown, "verified"));
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{},
        {"--config", world.record(), "--kv-type", "q8_0"},
        {"--config", world.record(), "--recompute", "all"}}) {
    const auto exact = world.ask(other);
    CHECK(!flag(exact, "approximate"));
    CHECK(flag(exact, "verified"));
    CHECK(exact["reused"]["placed"].GetUint() == 0);
  }
}

TEST_CASE("what does not pass, or cannot be measured, writes no record and says the remedy") {
  const World world;
  struct Case {
    std::vector<std::string> options;
    const char* word;
  };
  const Case cases[] = {
      {{"--percents", "5", "--kl-max", "0", "--prompts", "1"},
       "No percentage kept the answers; every token is computed. "},
      {{"--passages", "64"}, "--passage-tokens"},
      {{"-c", "200"}, "-c"},
      {{"--config", world.large_pages()}, "--passage-tokens"},
      {{"--choice", "random"}, "--record"},
  };
  for (const Case& each : cases) {
    const test::Ended ended = world.verify(each.options);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == (each.options[0] == "--choice" ? 64 : 78));
    CHECK(ended.err.find(each.word) != std::string::npos);
    CHECK(!std::filesystem::exists(world.record()));
  }
}

}  // namespace
}  // namespace tarn::verify_reuse_native_test
