// Goal    `tarn verify` tells a selection that reads everything from one that reads little, by KL,
//         best tokens and planted facts; its verdict follows its limits, and what it cannot measure
//         is refused with the remedy. Where it was asked for a record, none is no success.
//         Its record holds for the model and the settings that it was made with.
// Method  the built-in model on prose of this repository, short; the program as a shell starts it.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <string>
#include <vector>

#include "tests/support/folders.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_file.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::verify_native_test {
namespace {

const std::string kModel = test::source_folder() + "/tools/builtin/logbook.gguf";
const std::string kText = test::source_folder() + "/tools/builtin/sample.jsonl";

std::vector<std::string> verify(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"verify", "-m", kModel, "--text", kText, "--lock", "off"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const rapidjson::Value& member(const rapidjson::Value& of, const char* name) {
  const auto it = of.FindMember(name);
  REQUIRE(it != of.MemberEnd());
  return it->value;
}

TEST_CASE("all tokens chosen is exact, few are worse, and the verdict says so") {
  const test::TempFile config("verify.toml");
  const std::string toml = "[select]\nsink_tokens = 4\nlocal_tokens = 16\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended =
      test::run_tarn(verify({"--config", config.path(), "-c", "1000", "--steps", "24", "--needles",
                             "0", "--presets", "pq,window", "--budgets", "16,4096", "--json"}));
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(json.IsObject());
  const auto& trials = member(json, "trials");
  REQUIRE(trials.Size() == 5);
  CHECK(member(trials[0], "name").GetString() == std::string("full"));
  const auto kl = [&](u32 i) { return member(trials[i], "kl_mean").GetDouble(); };
  const auto verdict = [&](u32 i) { return std::string(member(trials[i], "verdict").GetString()); };
  for (const u32 i : {1u, 3u}) {  // 16 tokens
    CAPTURE(i);
    CHECK(member(trials[i], "steps_selected").GetUint64() >= 20);
    CHECK(member(trials[i], "tokens_read").GetDouble() == 4 + 16 + 16);
    CHECK(kl(i) > 1e-3);
    CHECK(verdict(i) == (kl(i) <= 0.05 && member(trials[i], "top1_agreement").GetDouble() >= 0.95
                             ? "passed"
                             : "failed"));
  }
  CHECK(kl(1) < kl(3));  // pq chooses better than a window does
  for (const u32 i : {2u, 4u}) {
    CAPTURE(i);
    CHECK(kl(i) == 0);
    CHECK(member(trials[i], "top1_agreement").GetDouble() == 1);
    CHECK(verdict(i) != "failed");
  }
}

TEST_CASE("a preset is verified with its own share, and its record says it" *
          doctest::skip(test::kSlowBuild)) {
  const test::TempFile record("record.toml");
  const test::Ended ended = test::run_tarn(
      verify({"-c", "1600", "--steps", "8", "--needles", "0", "--presets", "pqcache-longbench",
              "--budgets", "0", "--kl-max", "10", "--top1-min", "0", "--record", record.path()}));
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.out.find("pqcache-longbench own share") != std::string::npos);
  const std::string text = tools::read_file(record.path());
  CAPTURE(text);
  CHECK(text.find("select.context_divisor = 10\n") != std::string::npos);
  const test::Ended run =
      test::run_tarn({"run", "-m", kModel, "--config", record.path(), "-p", "Log.", "-n", "4", "-c",
                      "64", "--lock", "off", "--json"});
  CHECK(run.out.find("\"verified\": true") != std::string::npos);
}

TEST_CASE("its record makes replies verified, with this model and these settings alone") {
  const test::TempFile config("verify.toml"), record("record.toml"), other("other.gguf");
  const std::string toml = "[select]\nsink_tokens = 4\nlocal_tokens = 16\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended verified = test::run_tarn(verify(
      {"--config", config.path(), "-c", "1000", "--steps", "8", "--needles", "0", "--presets", "pq",
       "--budgets", "64,128", "--kl-max", "10", "--top1-min", "0", "--record", record.path()}));
  CAPTURE(verified.err);
  REQUIRE(verified.exit_code == 0);
  const std::string text = tools::read_file(record.path());
  CAPTURE(text);
  CHECK(text.find("pq 64, over 1000 tokens") != std::string::npos);  // it reads less
  CHECK(text.find("select.k_tokens = 64\n") != std::string::npos);
  CHECK(text.find("index_delay_tokens") ==
        std::string::npos);  // the trials' is not what a box wants
  const auto is_verified = [&](const std::string& with_toml, const std::string& model) {
    tools::write_file(config.path(), with_toml.data(), with_toml.size());
    const test::Ended ended =
        test::run_tarn({"run", "-m", model, "--config", config.path(), "-p", "Log.", "-n", "4",
                        "-c", "64", "--lock", "off", "--json"});
    CAPTURE(ended.err);
    REQUIRE(ended.exit_code == 0);
    rapidjson::Document json;
    json.Parse(ended.out.c_str());
    REQUIRE(json.IsObject());
    CHECK(member(json, "select") == "pq");
    return member(json, "verified").GetBool();
  };
  CHECK(is_verified(text, kModel));
  std::string changed = text;
  const std::string key = "select.k_tokens = 64";
  REQUIRE(changed.find(key) != std::string::npos);
  changed.replace(changed.find(key), key.size(), "select.k_tokens = 63");
  CHECK_FALSE(is_verified(changed, kModel));
  std::string bytes = tools::read_file(kModel);
  bytes[bytes.size() - 1000] ^= 1;  // of a tensor
  tools::write_file(other.path(), bytes.data(), bytes.size());
  CHECK_FALSE(is_verified(text, other.path()));
}

TEST_CASE("where nothing passes it ends with 78 and says what to do") {
  const test::Ended ended =
      test::run_tarn(verify({"-c", "1200", "--steps", "8", "--needles", "0", "--presets", "window",
                             "--budgets", "16", "--kl-max", "0"}));
  CHECK(ended.exit_code == 78);
  CHECK(ended.out.find("failed") != std::string::npos);
  CHECK(ended.err.find("--select full") != std::string::npos);
}

TEST_CASE("a record that was asked for is written, or the exit code says that it is not") {
  const test::TempFile record("record.toml");
  const std::string old = "# an old one\n";
  struct Case {
    std::vector<std::string> arguments;
    const char* prints;
    const char* says;
  };
  const Case kCases[] = {
      // All of 1,000 tokens are read where 4,096 may be.
      {{"-c", "1000", "--needles", "0", "--budgets", "4096"}, "read everything", "raise -c"},
      // Log books are all that this model knows about.
      {{"-c", "2000", "--needles", "2", "--budgets", "64", "--kl-max", "99", "--top1-min", "0"},
       "unknown",
       "--needles 0"},
      {{"-c", "1200", "--needles", "0", "--budgets", "16", "--kl-max", "0"},
       "failed",
       "--select full"},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.says);
    tools::write_file(record.path(), old.data(), old.size());
    std::vector<std::string> arguments = verify(c.arguments);
    arguments.insert(arguments.end(),
                     {"--steps", "8", "--presets", "pq", "--record", record.path()});
    const test::Ended ended = test::run_tarn(arguments);
    CAPTURE(ended.out);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 78);
    CHECK(ended.out.find(c.prints) != std::string::npos);
    CHECK(ended.err.find(c.says) != std::string::npos);
    CHECK(ended.err.find(record.path() + " is not written") != std::string::npos);
    CHECK(tools::read_file(record.path()) == old);
  }
  const test::Ended whole = test::run_tarn(verify(
      {"-c", "1000", "--needles", "0", "--steps", "8", "--presets", "pq", "--budgets", "4096"}));
  CHECK(whole.exit_code == 0);  // exact, and no record was asked for
}

TEST_CASE("compare-pqcache is verified method by method") {
  const test::Ended ended = test::run_tarn(
      verify({"-c", "1400", "--steps", "4", "--needles", "0", "--presets", "compare-pqcache",
              "--budgets", "64", "--kl-max", "99", "--top1-min", "0", "--json"}));
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  rapidjson::Document json;
  json.Parse(ended.out.c_str());
  REQUIRE(json.IsObject());
  const auto& trials = member(json, "trials");
  REQUIRE(trials.Size() == 6);
  const char* const kMethods[] = {"full", "oracle", "pq", "quest", "window", "random"};
  for (u32 i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(member(trials[i], "method").GetString() == std::string(kMethods[i]));
    CHECK((member(trials[i], "steps_selected").GetUint64() > 0) == (i > 0));
  }
}

TEST_CASE("what cannot be measured is refused") {
  const test::TempFile text("short.txt");
  tools::write_file(text.path(), "too short", 9);
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    const char* says;
  };
  const Case kCases[] = {
      {{"verify", "-m", kModel, "--text", text.path()}, 78, "give a longer text"},
      {verify({"-c", "64"}), 78, "raise -c to"},
      {verify({"--presets", "full"}), 64, "presets"},
      {{"verify", "-m", kModel, "--text", "/nowhere/at/all"}, 74, "/nowhere/at/all"},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.says);
    const test::Ended ended = test::run_tarn(c.arguments);
    CHECK(ended.exit_code == c.exit_code);
    CHECK(ended.err.find(c.says) != std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::verify_native_test
