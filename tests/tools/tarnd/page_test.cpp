// Goal    The key table of tools/tarnd/README.md is that of Settings::visit().
// Method  The table is made anew and compared; TARN_UPDATE_GOLDEN=1 rewrites it instead.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/folders.h"
#include "tools/support/input.h"
#include "tools/tarnd/settings.h"

namespace tarn::daemon::page_test {
namespace {

struct TableMaker {
  std::ostringstream out;

  void operator()(const char* key, const auto& value, u64 min, u64 max, bool reloads,
                  const char* about) {
    row(key, std::to_string(value), std::to_string(min) + " .. " + std::to_string(max), reloads,
        about);
  }
  void operator()(const char* key, const bool& value, bool reloads, const char* about) {
    row(key, value ? "true" : "false", "true, false", reloads, about);
  }
  void operator()(const char* key, const std::string& value, bool reloads, const char* about) {
    row(key, value, "a text", reloads, about);
  }
  void operator()(const char* key, const std::vector<std::string>&, bool reloads,
                  const char* about) {
    row(key, "", "a list of texts", reloads, about);
  }
  void row(const char* key, const std::string& value, const std::string& range, bool reloads,
           const char* about) {
    out << "| `daemon." << key << "` | " << value << " | " << range << " | "
        << (reloads ? "yes" : "") << " | " << about << " |\n";
  }
};

TEST_CASE("the key table in tools/tarnd/README.md is up to date") {
  TableMaker table;
  table.out << "| key | default | values | SIGHUP | meaning |\n|---|---|---|---|---|\n";
  Settings().visit(table);
  constexpr std::string_view kBegin = "<!-- keys: begin -->\n", kEnd = "<!-- keys: end -->\n";
  const auto path = std::filesystem::path(test::source_folder()) / "tools/tarnd/README.md";
  const std::string text = tools::read_file(path.string(), u64{1} << 20);
  const u64 begin = text.find(kBegin), end = text.find(kEnd);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const u64 table_begin = begin + kBegin.size();
  if (std::getenv("TARN_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        << text.substr(0, table_begin) << table.out.str() << text.substr(end);
    return;
  }
  INFO("TARN_UPDATE_GOLDEN=1 rewrites the table");
  CHECK(text.substr(table_begin, end - table_begin) == table.out.str());
}

}  // namespace
}  // namespace tarn::daemon::page_test
