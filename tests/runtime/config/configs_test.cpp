// Goal    the key table in configs/README.md is that of visit(), and every file in configs/ is a
// valid
//         configuration with a budget.
// Method  the table is made anew and compared; TARN_UPDATE_GOLDEN=1 rewrites it instead.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <type_traits>

#include "runtime/config/config.h"
#include "tests/support/folders.h"

namespace tarn::configs_test {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(test::source_folder()) / "configs";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string bytes_text(u64 bytes) {
  if (bytes > 0 && bytes % kGiB == 0) return std::to_string(bytes / kGiB) + "GiB";
  return std::to_string(bytes);
}

struct TableMaker {
  std::ostringstream out;

  template <class Number>
  void operator()(const char* key, const Number& value, u64 min, u64 max, const char* help) {
    if (std::string_view(key).ends_with("_bytes")) {
      row(key, bytes_text(value), bytes_text(min) + " .. " + bytes_text(max), help);
    } else {
      row(key, std::to_string(value), std::to_string(min) + " .. " + std::to_string(max), help);
    }
  }
  template <class Choice>
  void operator()(const char* key, const Choice& value, ChoiceNames names, const char* help) {
    std::string all;
    for (const char* name : names) all += (all.empty() ? "" : ", ") + std::string(name);
    if constexpr (std::is_enum_v<Choice>) {
      row(key, names[static_cast<u64>(value)], all, help);
    } else {
      row(key, value.data(), all, help);
    }
  }
  void operator()(const char* key, const bool& value, const char* help) {
    row(key, value ? "true" : "false", "true, false", help);
  }
  template <u64 n>
  void operator()(const char* key, const std::array<char, n>& value, const char* help) {
    row(key, std::string(value.data()), "a text of at most " + std::to_string(n - 1), help);
  }
  void row(const char* key, const std::string& value, const std::string& range, const char* help) {
    out << "| `" << key << "` | " << value << " | " << range << " | " << help << " |\n";
  }
};

TEST_CASE("the key table in configs/README.md is up to date") {
  TableMaker table;
  table.out << "| key | default | values | meaning |\n|---|---|---|---|\n";
  Config{}.visit(table);

  constexpr std::string_view kBegin = "<!-- keys: begin -->\n", kEnd = "<!-- keys: end -->\n";
  const std::filesystem::path path = kConfigs / "README.md";
  const std::string text = read_file(path);
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

TEST_CASE("every file in configs/ is valid and sets a budget") {
  u32 n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".toml") continue;
    CAPTURE(entry.path().filename().string());
    ++n_files;
    const Result<Config> config = config_from_toml(read_file(entry.path()), Config{});
    REQUIRE(config.has_value());
    CHECK(config->budget_bytes > 0);
    CHECK(read_file(kConfigs / "README.md").find(entry.path().filename().string()) !=
          std::string::npos);
  }
  CHECK(n_files >= 2);
}

}  // namespace
}  // namespace tarn::configs_test
