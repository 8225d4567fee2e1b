// Goal    long work is told on standard error: often on a terminal, rarely elsewhere, with the time
//         that is left, and quick work is not told at all.
// Method  virtual time, a show() each tenth of a second for a thousand seconds, into a file.
#include "tools/support/progress.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace tarn::tools::progress_test {
namespace {

struct Told {
  std::string text;
  u64 n(char c) const { return static_cast<u64>(std::ranges::count(text, c)); }
  bool has(const char* piece) const { return text.find(piece) != std::string::npos; }
};

// Tells of work that takes `n_tenths` of a second, of `n_all`.
Told told(bool on_terminal, u32 n_tenths, u32 n_all) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    VirtualClock clock;
    Progress progress(clock, on_terminal, file);
    for (u32 i = 0; i < n_tenths; ++i) {
      clock.advance_ns(100'000'000);
      progress.show("step " + std::to_string(i), static_cast<f64>(i + 1) / n_all);
    }
  }
  Told told;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    told.text.push_back(static_cast<char>(c));
  }
  std::fclose(file);
  return told;
}

TEST_CASE("quick work is silent, on a terminal and elsewhere") {
  CHECK(told(true, 4, 4).text.empty());
  CHECK(told(false, 95, 95).text.empty());
}

TEST_CASE("a terminal has one line, which goes at the end") {
  const Told shown = told(true, 100, 200);
  CHECK(shown.n('\n') == 0);
  CHECK(shown.n('\r') > 40);
  CHECK(shown.has("\rstep 49, 15 s left\033[K"));
  CHECK(shown.text.ends_with("\r\033[K"));
}

TEST_CASE("elsewhere lines come after ten seconds, and more rarely the longer the work takes") {
  const Told first = told(false, 301, 6000);
  CHECK(first.n('\n') == 3);
  CHECK(first.n('\r') == 0);
  CHECK(first.has("step 99, 10 min left\n"));
  const Told hour = told(false, 36'000, 36'000);
  CHECK(hour.n('\n') > 20);
  CHECK(hour.n('\n') < 60);
}

TEST_CASE("bytes are told as a share of all") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  VirtualClock clock;
  Progress progress(clock, /*on_terminal=*/false, file);
  clock.advance_ns(20'000'000'000);
  progress.show_bytes("writing", 1'000'000'000, 4'000'000'000);
  progress.show_bytes("writing", 0, 0);
  std::rewind(file);
  char text[128] = {};
  REQUIRE(std::fgets(text, sizeof text, file) != nullptr);
  CHECK(std::string(text) == "writing 25 % of 4.0 GB, 60 s left\n");
  CHECK(std::fgetc(file) == EOF);
  std::fclose(file);
}

}  // namespace
}  // namespace tarn::tools::progress_test
