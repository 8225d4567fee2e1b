// Goal    tarn-bench --long writes a page that stands alone, with the figures of the runs as JSON
//         and all that its script reads of them; each series has a command that gives its figures
//         again; figures from filled KV say so; what could not be measured is named.
// Method  the program on a small random model, the JSON of its page. What the script draws is
//         looked at by people: no browser is part of the tests.
#include <doctest/doctest.h>
#include <rapidjson/document.h>

#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarn/command_line.h"
#include "tools/support/input.h"
#include "tools/tarn-bench/shell_quoted.h"

namespace tarn::bench::long_native_test {
namespace {

using rapidjson::Value;

// The JSON of a page. No "<" stands in it, so nothing ends it early.
rapidjson::Document measured_of(const std::string& html) {
  const std::string open = "id=\"measured\">";
  const size_t begin = html.find(open) + open.size();
  rapidjson::Document measured;
  measured.Parse(html.substr(begin, html.find('<', begin) - begin).c_str());
  REQUIRE_FALSE(measured.HasParseError());
  return measured;
}

// Rows of all series that have a number there.
u64 n_with(const rapidjson::Document& measured, const char* key) {
  u64 n = 0;
  for (const Value& series : measured["series"].GetArray()) {
    for (const Value& row : series["rows"].GetArray()) n += row[key].IsNumber() ? 1u : 0u;
  }
  return n;
}

// What the template's script reads of an object that it calls `name`: name.key.
std::set<std::string> keys_read(const std::string& html, const std::string& name) {
  std::set<std::string> keys;
  const std::regex key("[^a-zA-Z_.]" + name + "\\.([a-z_]+)\\b(?![(A-Z])");
  const std::string script = html.substr(html.find("\"use strict\""));
  for (auto it = std::sregex_iterator(script.begin(), script.end(), key);
       it != std::sregex_iterator(); ++it) {
    keys.insert((*it)[1]);
  }
  return keys;
}

TEST_CASE("the page stands alone, with a command in each caption and the figures in a table") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html"), config("long.toml");
  const std::string toml =
      "[select]\nsink_tokens = 16\nlocal_tokens = 64\ncode_bits = 4\nindex_delay_tokens = 4\n"
      "[kv]\npage_tokens = 16\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended = test::run_tarn({"-m",
                                            model.path(),
                                            "--long",
                                            page.path(),
                                            "--fill-kv",
                                            "300,600",
                                            "-n",
                                            "4",
                                            "-r",
                                            "1",
                                            "-p",
                                            "64,128",
                                            "--k-list",
                                            "96,32",
                                            "--config",
                                            config.path(),
                                            "--no-bandwidth",
                                            "-t",
                                            "1",
                                            "-o",
                                            "none"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string html = tools::read_file(page.path());

  // Nothing is fetched: the only address is the name of SVG's name space.
  CHECK(html.find("http") == html.rfind("http"));
  for (const char* word : {"src=", "<link", "<img", "@import", "url(", "fetch(", "MEASURED"}) {
    CAPTURE(word);
    CHECK(html.find(word) == std::string::npos);
  }
  const rapidjson::Document measured = measured_of(html);
  CHECK(std::string(measured["command"].GetString()).find("--long") != std::string::npos);
  std::string names;
  for (const Value& series : measured["series"].GetArray()) {
    names += series["name"].GetString() + std::string("; ");
    CHECK(std::string(series["command"].GetString()).starts_with("tarn-bench -m "));
    CHECK(series["rows"].Size() == 2);  // one for each context
    CHECK(series["plans"].Size() == 2);
    CHECK(std::string(series["why_not"].GetString()).empty());
  }
  CHECK(names == "full, f16; full, q8_0; full, q4_0; PQCache, k 96; PQCache, k 32; window, k 96; ");
  CHECK(n_with(measured, "avg_ts") == 6 * 2);
  CHECK(n_with(measured, "recall") == 2 * 2);
  CHECK(n_with(measured, "hit_rate") == 0);  // there is no store
  CHECK(measured["series"][0]["prompts"].Size() == 2);
  // What the script reads is there, by that name.
  const Value& first = measured["series"][0];
  const std::pair<const char*, const Value&> kRead[] = {
      {"measured", measured}, {"s", first}, {"r", first["rows"][0]}, {"p", first["plans"][0]}};
  for (const auto& [name, value] : kRead) {
    const std::set<std::string> keys = keys_read(html, name);
    CHECK(keys.size() >= 2);
    for (const std::string& key : keys) {
      CAPTURE(key);
      CHECK(value.HasMember(key.c_str()));
    }
  }
}

// What a shell prints that is given the command of a caption.
rapidjson::Document rows_of(std::string command, const std::string& out_path) {
  const std::string name = "tarn-bench ";
  REQUIRE(command.starts_with(name));
  command.replace(0, name.size(), "'" TARN_PROGRAM "' ");
  CAPTURE(command);
  REQUIRE(std::system((command + " > '" + out_path + "'").c_str()) == 0);
  rapidjson::Document rows;
  rows.Parse(tools::read_file(out_path).c_str());
  REQUIRE(rows.IsArray());
  return rows;
}

TEST_CASE("with a store there are its plots too, and the commands give their figures again") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html"), config("long one.toml"), out("rows.json");
  const test::TempDir store("long store");
  const std::string toml =
      "[select]\nsink_tokens = 16\nlocal_tokens = 64\ncode_bits = 4\nindex_delay_tokens = 4\n"
      "[kv]\npage_tokens = 16\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended = test::run_tarn({"-m",
                                            model.path(),
                                            "--long",
                                            page.path(),
                                            "--fill-kv",
                                            "300,600",
                                            "-n",
                                            "4",
                                            "-r",
                                            "1",
                                            "-p",
                                            "64,128",
                                            "--k-list",
                                            "96,32",
                                            "--config",
                                            config.path(),
                                            "--no-bandwidth",
                                            "-t",
                                            "1",
                                            "--ub",
                                            "48",
                                            "--io",
                                            "threads",
                                            "--isa",
                                            "generic",
                                            "--no-warmup",
                                            "--overlap",
                                            "0.55",
                                            "--store",
                                            store.path(),
                                            "--kv-memory",
                                            "256KiB",
                                            "--budget",
                                            "256MiB",
                                            "--select",
                                            "quest",
                                            "-o",
                                            "jsonl"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const std::string html = tools::read_file(page.path());
  constexpr u64 kOfOneTier = 3 + 2 + 1 + 1;  // numbers of KV, values of k, a window, quest
  const rapidjson::Document measured = measured_of(html);
  // Whatever runs in memory runs over the disk, too, at both contexts.
  REQUIRE(measured["series"].Size() == 2 * kOfOneTier);
  for (u32 i = 0; i < 2 * kOfOneTier; ++i) {
    const Value& series = measured["series"][i];
    CAPTURE(series["name"].GetString());
    CHECK(series["has_store"].GetBool() == (i >= kOfOneTier));
    CHECK(std::string(series["name"].GetString()).ends_with(", store") == (i >= kOfOneTier));
    CHECK(std::string(series["why_not"].GetString()).empty());
  }
  CHECK(n_with(measured, "hit_rate") >= 2 * 3);
  CHECK(n_with(measured, "useful_share") >= 2);
  const Value& pq = measured["series"][3];
  CHECK(pq["index_delay_tokens"].GetUint() == 4);
  CHECK(std::string(pq["prompts_command"].GetString()).find("--pg 64,1 --pg 128,1") !=
        std::string::npos);

  std::vector<std::string> lines;  // a row each, in the order of the captions
  for (std::istringstream in(ended.out); std::getline(in, lines.emplace_back());) {
  }
  lines.pop_back();
  u64 n_rows = 0;
  for (const Value& series : measured["series"].GetArray()) {
    const std::string text = series["command"].GetString();
    CAPTURE(text);
    for (const char* option : {" --ub 48", " --io threads", " --isa generic", " --no-warmup",
                               " --overlap 0.55", " --budget 256MiB", " -r 1 "}) {
      CHECK(text.find(option) != std::string::npos);
    }
    if (n_rows % 6 != 0) {  // one of three is run again
      n_rows += 2;
      continue;
    }
    const rapidjson::Document again = rows_of(text, out.path());
    REQUIRE(again.Size() == 2);
    for (const auto& row : again.GetArray()) {
      REQUIRE(n_rows < lines.size());
      rapidjson::Document want;
      want.Parse(lines[n_rows++].c_str());
      REQUIRE(want.IsObject());
      for (const char* key : {"select", "type_k", "n_depth", "n_ubatch", "n_threads", "isa", "io",
                              "slots_per_head", "kv_bytes_per_token", "recall"}) {
        CAPTURE(key);
        REQUIRE(want.HasMember(key));
        CHECK(want[key] == row[key]);
      }
      CHECK(want["samples_ns"].Size() == row["samples_ns"].Size());
      CHECK(std::string(row["kv"].GetString()).starts_with("filled, synthetic"));
    }
  }
  CHECK(n_rows == 2 * 2 * kOfOneTier);
  CHECK(n_rows == lines.size());
}

TEST_CASE(
    "a configuration with a store of its own is refused: the series in memory would be over it") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html"), config("long.toml");
  const test::TempDir store("long_configured");
  const std::string toml = "[store]\npath = '" + store.path() + "'\nquota_bytes = \"64MiB\"\n";
  tools::write_file(config.path(), toml.data(), toml.size());
  const test::Ended ended = test::run_tarn(
      {"-m", model.path(), "--long", page.path(), "--config", config.path(), "--fill-kv", "300"});
  CHECK(ended.exit_code == 64);
  CHECK(ended.err.find("use a configuration without store.path") != std::string::npos);
}

TEST_CASE("words of a command line are quoted where a shell needs it") {
  CHECK(shell_quoted("/a/b-c_1,2.gguf") == "/a/b-c_1,2.gguf");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("$HOME") == "'$HOME'");
}

TEST_CASE("what cannot be measured is named, and the rest is there") {
  const test::SmallModel model("llama", "q8_0");
  const test::TempFile page("long.html");

  const test::Ended ended = test::run_tarn({"-m", model.path(), "--long", page.path(), "--fill-kv",
                                            "300", "-n", "2", "-r", "1", "-p", "0", "--k-list", "0",
                                            "--no-bandwidth", "-t", "1", "-o", "none"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  const rapidjson::Document measured = measured_of(tools::read_file(page.path()));
  CHECK(measured["series"][0]["rows"].Size() == 1);
  CHECK(std::string(measured["series"][3]["name"].GetString()) == "PQCache, k 0");
  CHECK(measured["series"][3]["why_not"].GetStringLength() > 0);
  CHECK(ended.err.find("PQCache, k 0 was not measured") != std::string::npos);
}

}  // namespace
}  // namespace tarn::bench::long_native_test
