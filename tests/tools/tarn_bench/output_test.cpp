// Goal    the share of the memory's bandwidth is told where it says something: below 1, of what was
//         generated; elsewhere "-" stands in the table and null in JSON.
// Method  rows with given times and bytes, against a bandwidth of 10 GB/s.
#include "tools/tarn-bench/output.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

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
    CHECK(to_json_line(row).find(std::string("\"bandwidth_share\":") + c.json + ",") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace tarn::bench::output_test
