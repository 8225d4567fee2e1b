// Goal    tarn-bench measures what its flags say: a generation by selection reads the configured
//         number of tokens a KV head, and fewer bytes than one that reads everything, at the same
//         depth; repetitions all start at that depth. What a configuration says stands where no
//         option says otherwise, a record of tarn verify among it.
// Method  the program itself on a small random model, its JSON read back.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/folders.h"
#include "tests/support/open_engine.h"
#include "tests/support/skip.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"

namespace tarn::bench::bench_native_test {
namespace {

rapidjson::Document rows_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"-o", "json", "--no-bandwidth", "-t", "1"});
  const test::Ended ended = test::run_tarn(arguments);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  rapidjson::Document rows;
  rows.Parse(ended.out.c_str());
  REQUIRE(rows.IsArray());
  return rows;
}

TEST_CASE("a generation by selection reads as many tokens as configured, at every repetition") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile config("bench.toml");
  std::ofstream(config.path()) << "[select]\nsink_tokens = 16\nlocal_tokens = 64\n"
                                  "k_tokens = 48\ncode_bits = 4\nindex_delay_tokens = 4\n";
  const rapidjson::Document rows =
      rows_of({"-m", model.path(), "-p", "0", "-n", "8", "-d", "0,400", "-r", "3", "--select",
               "full,pq,window", "--config", config.path()});
  REQUIRE(rows.Size() == 6);
  const auto row = [&](u32 method, u32 depth) -> const rapidjson::Value& {
    return rows[method * 2 + depth];
  };
  CHECK(std::string(row(0, 1)["select"].GetString()) == "full");
  CHECK(row(0, 1)["verified"].GetBool());
  CHECK(row(0, 1)["slots_per_head"].GetDouble() == 0);
  for (const u32 method : {1u, 2u}) {
    CAPTURE(method);
    CHECK(row(method, 0)["slots_per_head"].GetDouble() == 0);  // too short for an index
    CHECK(row(method, 1)["slots_per_head"].GetDouble() == 16 + 64 + 48);
    CHECK(!row(method, 1)["verified"].GetBool());
    CHECK(row(method, 1)["bytes_per_token"].GetDouble() < row(0, 1)["bytes_per_token"].GetDouble());
  }
  // Eight tokens behind 400: each run reads the same, whichever came before it.
  CHECK(row(0, 1)["samples_ns"].Size() == 3);
  const f64 kv_bytes =
      row(0, 1)["bytes_per_token"].GetDouble() - row(0, 0)["bytes_per_token"].GetDouble();
  const rapidjson::Document once =
      rows_of({"-m", model.path(), "-p", "0", "-n", "8", "-d", "0,400", "-r", "1"});
  CHECK(kv_bytes ==
        once[1]["bytes_per_token"].GetDouble() - once[0]["bytes_per_token"].GetDouble());
}

TEST_CASE("a configuration's keys stand until an option says otherwise") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile file("bench.toml");
  const auto rows_with = [&](const std::string& toml, std::vector<std::string> options) {
    std::ofstream(file.path()) << toml;
    std::vector<std::string> arguments = {"-m",          model.path(), "-p",       "0",  "-n",
                                          "2",           "-d",         "300",      "-r", "1",
                                          "--no-warmup", "--config",   file.path()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return rows_of(arguments);
  };
  const std::string keys =
      "[kv]\ntype = \"q8_0\"\n[engine]\nbatch_rows_max = 48\n[cpu]\nisa = \"generic\"\n"
      "[io]\nbackend = \"threads\"\n[device]\nkind = \"cpu\"\n";
  const std::string select =
      "[select]\nmethod = \"pq\"\nsink_tokens = 16\nlocal_tokens = 64\nk_tokens = 48\n"
      "code_bits = 4\nindex_delay_tokens = 4\ncontext_min = 1\n";
  const rapidjson::Document as_told = rows_with(keys + select, {});
  REQUIRE(as_told.Size() == 1);
  CHECK(std::string(as_told[0]["type_k"].GetString()) == "q8_0");
  CHECK(as_told[0]["n_ubatch"].GetUint() == 48);
  CHECK(std::string(as_told[0]["isa"].GetString()) == "generic");
  CHECK(std::string(as_told[0]["io"].GetString()) == "threads");
  CHECK(std::string(as_told[0]["select"].GetString()) == "pq");
  CHECK(as_told[0]["slots_per_head"].GetDouble() == 16 + 64 + 48);
  CHECK_FALSE(as_told[0]["verified"].GetBool());

  const rapidjson::Document over =
      rows_with(keys + select, {"--ctk", "f16", "--ub", "32", "--isa", "auto", "--io", "auto",
                                "--select", "full", "--device", "cpu"});
  CHECK(std::string(over[0]["type_k"].GetString()) == "f16");
  CHECK(over[0]["n_ubatch"].GetUint() == 32);
  CHECK(std::string(over[0]["select"].GetString()) == "full");
  CHECK(over[0]["verified"].GetBool());

  // A selection has the name that --select would give it: another budget, another name.
  const rapidjson::Document compared = rows_with(
      "[select]\npreset = \"compare-pqcache\"\nmethod = \"quest\"\ncontext_min = 1\n", {});
  CHECK(std::string(compared[0]["select"].GetString()) == "compare-pqcache/quest");

  // The mark of a record that fits, as the engine works it out.
  Config config = *config_from_toml(keys + select + "verified = \"0\"\n", Config{});
  config.context_tokens = 512;
  config.budget_bytes = kGiB;
  const std::string mark = [&] {
    const test::OpenEngine opened(model.path(), config);
    return std::string(opened.engine.status().select_mark.data());
  }();
  const std::string record = "verified = \"" + mark + "\"\n";
  CHECK(rows_with(keys + select + record, {})[0]["verified"].GetBool());
  CHECK_FALSE(rows_with(keys + select + record, {"--k", "47"})[0]["verified"].GetBool());
}

TEST_CASE("compare-pqcache is each method at its budget, and reads less than everything") {
  const test::SmallModel model("llama", "q8_0");
  const rapidjson::Document rows = rows_of({"-m", model.path(), "-p", "0", "-n", "4", "-d", "800",
                                            "-r", "1", "--select", "full,compare-pqcache"});
  REQUIRE(rows.Size() == 6);
  const char* const kNames[] = {"full",
                                "compare-pqcache/oracle",
                                "compare-pqcache/pq",
                                "compare-pqcache/quest",
                                "compare-pqcache/window",
                                "compare-pqcache/random"};
  for (u32 i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(std::string(rows[i]["select"].GetString()) == kNames[i]);
    if (i == 0) continue;
    CHECK_FALSE(rows[i]["verified"].GetBool());
    // 32 sinks, and tokens_min of the rest.
    CHECK(rows[i]["slots_per_head"].GetDouble() == doctest::Approx(32 + 256).epsilon(0.06));
    CHECK(rows[i]["kv_bytes_per_token"].GetDouble() <
          rows[0]["kv_bytes_per_token"].GetDouble() * 0.8);
  }
}

TEST_CASE("passages: what was there is not computed, and blending finds it in any order") {
  const test::SmallModel model("llama", "q8_0");
  const rapidjson::Document once =
      rows_of({"-m", model.path(), "--reuse", "4x192", "--shares", "0,0.25", "-r", "1"});
  const auto number = [](const rapidjson::Value& row, const char* name) {
    return row[name].GetDouble();
  };
  REQUIRE(once.Size() == 5);
  CHECK(number(once[0], "reused") + number(once[0], "placed") == 0);
  CHECK(number(once[1], "reused") >= 4 * 192 - 64);
  CHECK(number(once[2], "reused") < 192);
  CHECK(number(once[3], "recomputed") == 0);
  CHECK(number(once[3], "placed") >= 3 * 128);
  CHECK(number(once[4], "recomputed") ==
        doctest::Approx(number(once[3], "placed") / 4).epsilon(0.01));

  const rapidjson::Document rates =
      rows_of({"-m", model.path(), "--reuse", "4x192", "--shares", "0", "--queries", "8", "--pool",
               "6", "--kept", "6", "--similar", "2"});
  REQUIRE(rates.Size() == 3);
  CHECK(std::string(rates[0]["way"].GetString()) == "neither");
  CHECK(number(rates[0], "reused") == 0);
  CHECK(number(rates[2], "placed") > number(rates[2], "prompt_tokens") / 2);
  for (const auto& row : rates.GetArray())
    CHECK(number(row, "prompt_tokens") == number(rates[0], "prompt_tokens"));
}

TEST_CASE("--record appends machine, commit, command and rows, and the page of records takes it") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile records("records.jsonl"), page("records.md");
  for (const char* n : {"2", "3"}) {
    rows_of({"-m", model.path(), "-p", "8", "-n", n, "-r", "1", "--record", records.path()});
  }
  std::ifstream lines(records.path());
  u32 n_lines = 0;
  for (std::string line; std::getline(lines, line); ++n_lines) {
    rapidjson::Document record;
    record.Parse(line.c_str());
    REQUIRE(record.IsObject());
    CHECK(std::string(record["source"].GetString()) == "tarn-bench");
    CHECK(std::string(record["date"].GetString()).starts_with("20"));
    CHECK(record["commit"].IsString());
    CHECK(std::string(record["command"].GetString()).starts_with("tarn-bench -m "));
    CHECK(record["machine"]["cores"].GetUint() > 0);
    CHECK(record["machine"]["memory_bytes"].GetUint64() > kMiB);
    CHECK(record["machine"]["bandwidth_gb_per_s"].IsNull());  // --no-bandwidth
    const auto& power = record["machine"]["power"];
    CHECK(power["mode"].IsString());
    CHECK(power["hottest_zone"].IsString());
    for (const char* key : {"cpu_mhz", "cpu_mhz_max", "gpu_mhz", "gpu_mhz_max", "throttling"}) {
      CHECK(power[key].IsUint());
    }
    REQUIRE(record["rows"].Size() == 2);
    CHECK(record["rows"][1]["n_gen"].GetUint() == 2 + n_lines);
  }
  CHECK(n_lines == 2);
  if (std::system("python3 -c '' 2>/dev/null") != 0) TARN_SKIP("no python3");
  const std::string script = test::source_folder() + "/tests/bench/records.py '";
  const std::string command = "python3 " + script + records.path() + "' > '" + page.path() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string text = tools::read_file(page.path());
  CHECK(text.find("\n## tarn-bench, pp8, tg3") != std::string::npos);
  CHECK(text.find("| model | test | KV | select | threads | t/s | MB/token | GB/s |") !=
        std::string::npos);
  CHECK(test::run_tarn({"-m", model.path(), "-p", "8", "-n", "0", "-r", "1", "--record", "/no/x"})
            .exit_code == 74);
}

TEST_CASE("llama-bench's flags are taken, each test runs once, and what changes nothing is said") {
  const test::SmallModel model("llama", "q8_0");
  struct Case {
    const char* name;
    std::vector<std::string> options;
    u32 n_rows;
    const char* says;  // on standard error; "": nothing is
  };
  const Case kCases[] = {
      {"K and V", {"-ctk", "q8_0", "-ctv", "q8_0"}, 1, ""},
      {"two of each", {"-ctk", "f16,q8_0", "-ctv", "f16,q8_0"}, 2, "one number format"},
      {"layers of a GPU", {"-ngl", "99"}, 1, "-ngl 99 changes nothing"},
      {"none of them", {"-ngl", "0"}, 1, ""},
      {"attention in tiles", {"-fa", "1"}, 1, ""},
      {"attention without", {"-fa", "0,1"}, 1, "-fa 0,1 changes nothing"},
      {"a mapped file", {"-mmp", "1", "-sm", "layer"}, 1, "-mmp 1 changes nothing"},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    std::vector<std::string> words = {"-m",  model.path(),    "-p", "0", "-n", "2", "-r", "1", "-o",
                                      "csv", "--no-bandwidth"};
    words.insert(words.end(), c.options.begin(), c.options.end());
    const test::Ended ended = test::run_tarn(words);
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(std::ranges::count(ended.out, '\n') == 1 + c.n_rows);
    CHECK(ended.out.starts_with("build_commit,build_number,"));
    if (c.says[0] == '\0') {
      CHECK(ended.err.empty());
    } else {
      CHECK(ended.err.find(c.says) != std::string::npos);
      CHECK(ended.err.find(c.says) == ended.err.rfind(c.says));
    }
  }
  const test::Ended apart = test::run_tarn({"-m", model.path(), "-ctk", "f16", "-ctv", "q8_0"});
  CHECK(apart.exit_code == 64);
}

TEST_CASE("the table names the KV types that were asked for, and the build") {
  const test::SmallModel model("llama", "q8_0");
  const test::Ended ended = test::run_tarn({"-m", model.path(), "-p", "0", "-n", "2", "-r", "1",
                                            "-ctk", "q8_0", "--no-bandwidth", "--select", "pq"});
  CHECK(ended.out.find("| type_k | type_v |") != std::string::npos);
  CHECK(ended.out.find("| pq (all KV read) |") != std::string::npos);
  CHECK(ended.out.find("select: pq, tg2: all KV was read, no step selected\n") !=
        std::string::npos);
  CHECK(ended.out.find("\nbuild: ") != std::string::npos);
}

TEST_CASE("an option that a mode would ignore is refused with it") {
  const test::SmallModel model("llama", "q8_0");
  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{
           {"--record", "r.jsonl"}, {"--select", "pq"}, {"-d", "64"}, {"--kv-memory", "1MiB"}}) {
    CAPTURE(option[0]);
    std::vector<std::string> words = {"-m", model.path(), "--reuse", "2x64"};
    words.insert(words.end(), option.begin(), option.end());
    const test::Ended ended = test::run_tarn(words);
    CHECK(ended.exit_code == 64);
    CHECK(ended.err.find(" excludes --") != std::string::npos);
  }
  for (const std::vector<std::string>& option :
       std::vector<std::vector<std::string>>{{"-ctk", "q8_0"}, {"--k", "64"}, {"-d", "64"}}) {
    CAPTURE(option[0]);
    std::vector<std::string> words = {"-m", model.path(), "--long", "/no/x.html"};
    words.insert(words.end(), option.begin(), option.end());
    const test::Ended ended = test::run_tarn(words);
    CHECK(ended.exit_code == 64);
    CHECK(ended.err.find(" excludes --") != std::string::npos);
  }
}

TEST_CASE("a range that falls is refused as usage") {
  const test::SmallModel model("llama", "q8_0");
  const test::Ended ended = test::run_tarn({"-m", model.path(), "-p", "4-1", "-n", "1"});
  CHECK(ended.exit_code == 64);
  CHECK(ended.err.find("'4-1'") != std::string::npos);
}

TEST_CASE("a method that is none is refused as usage") {
  const test::SmallModel model("llama", "q8_0");
  const test::Ended ended = test::run_tarn({"-m", model.path(), "--select", "some"});
  CHECK(ended.exit_code == 64);
  CHECK(ended.err.find("--select") != std::string::npos);
}

}  // namespace
}  // namespace tarn::bench::bench_native_test
