// Goal    the share of the memory's bandwidth is told where it says something: below 1, of what was
//         generated; elsewhere "-" stands in the table and null in JSON. A table says which KV type
//         was asked for, and which rows read all KV by a selection. CSV has the values of JSON.
// Method  rows with given times and bytes, against a bandwidth of 10 GB/s.
#include "tools/tarn-bench/output.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tools/support/exit_code.h"
#include "tools/tarn-bench/format.h"
#include "tools/tarn-bench/peer_options.h"

namespace tarn::bench::output_test {
namespace {

Row row_with(u32 n_prompt, u64 bytes_a_second) {
  Row row;
  row.test = {.n_prompt = n_prompt, .n_gen = n_prompt == 0 ? 1u : 0u};
  row.samples = {{.ns = 1'000'000'000, .weight_bytes = bytes_a_second}};
  row.bandwidth_bytes_per_s = 10e9;
  return row;
}

std::string last_cell(const Row& row) {
  const std::string table = to_markdown({row});
  const size_t end = table.rfind(" |");
  return table.substr(table.rfind(' ', end - 1) + 1, end - table.rfind(' ', end - 1) - 1);
}

TEST_CASE("a share of the bandwidth is told up to 1") {
  struct Case {
    const char* name;
    u32 n_prompt;
    u64 bytes_a_second;
    const char* cell;
    const char* json;
  };
  const Case kCases[] = {
      {"half of it", 0, 5'000'000'000, "0.50", "0.5"},
      {"all of it", 0, 10'000'000'000, "1.00", "1.0"},
      {"three times: from a cache", 0, 30'600'000'000, "-", "null"},
      {"a prompt", 1, 5'000'000'000, "-", "null"},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Row row = row_with(c.n_prompt, c.bytes_a_second);
    CHECK(last_cell(row) == c.cell);
    CHECK(to_json_lines(to_json({row})).find(std::string("\"bandwidth_share\":") + c.json + ",") !=
          std::string::npos);
  }
}

TEST_CASE("a KV type that was asked for has its columns, also alone") {
  Row row = row_with(0, 1);
  row.kv_type = "f16";
  CHECK(to_markdown({row}).find("type_k") == std::string::npos);
  row.is_kv_type_given = true;
  CHECK(to_markdown({row}).find(" type_k | type_v |") != std::string::npos);
}

TEST_CASE("a row whose selection read everything says so") {
  struct Case {
    const char* name;
    const char* select;
    u32 n_depth;
    u64 n_slots;  // of one KV head and one token
    bool reads_all;
  };
  const Case kCases[] = {
      {"full attention", "full", 4096, 0, false},
      {"too short an answer", "pq", 4096, 0, true},
      {"an index", "pq", 4096, 2592, false},
      {"a choice as large as the context", "pq", 2048, 2050, true},
      {"another method", "window", 512, 0, true},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Row row = row_with(0, 1);
    row.select = c.select;
    row.test.n_depth = c.n_depth;
    row.n_heads_select = 2;
    row.samples[0].n_slots_chosen = 2 * c.n_slots;
    CHECK(row.reads_all() == c.reads_all);
    CHECK((to_markdown({row}).find(" (all KV read) |") != std::string::npos) == c.reads_all);
    const bool selects = row.select != "full" && !c.reads_all;
    CHECK(to_json({row}).find(selects ? "\"selected\": true" : "\"selected\": false") !=
          std::string::npos);
  }
}

TEST_CASE("CSV has a line of keys and a line a row, all values quoted, lists left out") {
  CHECK(to_csv(R"([{"a": "x \"y\", z", "b": 0.1, "c": null, "d": [1, 2], "e": true},
                   {"a": "", "b": 12345678901234567890, "c": 1e-30, "d": [], "e": false}])") ==
        "a,b,c,e\n"
        "\"x \"\"y\"\", z\",\"0.1\",\"\",\"1\"\n"
        "\"\",\"12345678901234567890\",\"1e-30\",\"0\"\n");
  CHECK(to_csv("[]").empty());
  CHECK(to_json_lines("[{\"a\": 0.1}, {\"a\": 2}]") == "{\"a\":0.1}\n{\"a\":2}\n");
  const Forms forms{.table = "t", .json_list = "[]\n"};
  CHECK(forms.in("md") == "t");
  CHECK(forms.in("json") == "[]\n");
  CHECK(forms.in("none").empty());
}

TEST_CASE("K and V have one type: those that both lists name") {
  using Types = std::vector<std::string>;
  struct Case {
    const char* name;
    Types types_k, types_v, measured;
  };
  const Case kCases[] = {
      {"neither", {}, {}, {}},
      {"K alone", {"q8_0"}, {}, {"q8_0"}},
      {"V alone", {}, {"q4_0"}, {"q4_0"}},
      {"the same once", {"q8_0"}, {"q8_0"}, {"q8_0"}},
      {"two of both", {"f16", "q8_0"}, {"q8_0", "f16"}, {"f16", "q8_0"}},
      {"one of both", {"f16", "q8_0"}, {"q8_0", "q4_0"}, {"q8_0"}},
  };
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CHECK(kv_types_of(c.types_k, c.types_v) == c.measured);
  }
  CHECK_THROWS_AS(kv_types_of({"f16"}, {"q8_0"}), tools::Failure);
}

}  // namespace
}  // namespace tarn::bench::output_test
