// Goal    the demonstration shows what it says: a process that is killed after it has written KV
//         resumes at a checkpoint with the same tokens. An early line is found by full attention
//         and by PQCache and not by a window of equal memory, in less than an eighth of what KV
//         takes; nothing stays on the disk.
// Method  the program as a shell starts it, with a short document under the long one's limits.
#include <doctest/doctest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "platform/base/types.h"
#include "tests/support/slow_build.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/tarn/command_line.h"

namespace tarn::demo_native_test {
namespace {

// The figures, in MiB, that stand in front of `text`.
std::vector<f64> mib_before(const std::string& out, const std::string& text) {
  std::vector<f64> figures;
  const std::regex pattern("([0-9.]+) MiB" + text);
  for (std::sregex_iterator at(out.begin(), out.end(), pattern), end; at != end; ++at) {
    figures.push_back(std::stod((*at)[1]));
  }
  return figures;
}

TEST_CASE("a document larger than memory: read, killed, restarted, asked" *
          doctest::skip(test::kSlowBuild)) {
  const test::TempDir folder("demo");
  std::filesystem::create_directory(folder.path());
  const test::Ended ended =
      test::run_tarn({"demo", "--document", "16384", "--store", folder.path()});
  CAPTURE(ended.err);
  CAPTURE(ended.out);
  REQUIRE(ended.exit_code == 0);
  const auto has = [&](const char* text) { return ended.out.find(text) != std::string::npos; };
  const std::vector<f64> whole_mib = mib_before(ended.out, "\nmemory ");
  const std::vector<f64> budget_mib = mib_before(ended.out, " for weights, KV");
  const std::vector<f64> planned_mib = mib_before(ended.out, " of memory");
  REQUIRE(whole_mib.size() == 1);
  REQUIRE(budget_mib.size() == 1);
  REQUIRE(planned_mib.size() == 4);  // the reading, and three ways to answer
  CHECK(whole_mib[0] == 128);
  CHECK(budget_mib[0] < whole_mib[0] / 8);
  for (const f64 planned : planned_mib) CHECK(planned <= budget_mib[0]);
  CHECK(has("the 32 tokens after the question identical: yes"));
  const auto line_of = [&](const std::string& name) {
    const size_t begin = ended.out.find("\n" + name);
    REQUIRE(begin != std::string::npos);
    return ended.out.substr(begin + 1, ended.out.find('\n', begin + 1) - begin - 1);
  };
  // Of the 9.6 MiB that are read by then, 2 stay in memory.
  const std::string killed = line_of("killed    with -9");
  std::smatch spilled;
  REQUIRE(std::regex_search(killed, spilled, std::regex(", ([0-9.]+) MiB spilled until then")));
  CHECK(std::stod(spilled[1]) > 4);
  const std::string resumed = line_of("resumed");
  std::smatch figures;
  REQUIRE(std::regex_search(resumed, figures, std::regex("at (\\d+) tokens \\((\\d+) lost\\)")));
  CHECK(std::stoul(figures[1]) > 0);
  CHECK(line_of("full attention").find(" right,") != std::string::npos);
  CHECK(line_of("PQCache").find(" right,") != std::string::npos);
  CHECK(line_of("a window").find(" wrong,") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a folder that is not there is refused") {
  const test::Ended ended = test::run_tarn({"demo", "--store", "/nowhere/at/all"});
  CHECK(ended.exit_code == 74);
  CHECK(ended.err.find("/nowhere/at/all") != std::string::npos);
}

TEST_CASE("a document that a window of equal memory holds as well is refused") {
  const test::Ended ended = test::run_tarn({"demo", "--document", "16383"});
  CHECK(ended.exit_code == 64);
  CHECK(ended.err.find("--document") != std::string::npos);
}

}  // namespace
}  // namespace tarn::demo_native_test
