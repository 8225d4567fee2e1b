// Goal    the clock runs forward; a log line is whole, bounded and clean.
// Method  tables; a host function that keeps the lines.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/log/log.h"

namespace tarn::basics_test {
namespace {

TEST_CASE("the system's clock never goes back, the virtual one moves only when told") {
  SystemClock clock;
  u64 last_ns = clock.now_ns();
  CHECK(last_ns > 0);
  for (u32 i = 0; i < 1000; ++i) {
    const u64 now_ns = clock.now_ns();
    REQUIRE(now_ns >= last_ns);
    last_ns = now_ns;
  }
  VirtualClock virtual_clock;
  CHECK(virtual_clock.now_ns() == virtual_clock.now_ns());
  virtual_clock.advance_ns(5);
  CHECK(virtual_clock.now_ns() == 5);
}

TEST_CASE("a time in UTC is what the C library says, without its environment") {
  // The epoch, the days around a leap day, the end of a century that has none, and of one that has.
  constexpr u64 kTimes[] = {0,          951'782'399,   951'782'400,   951'868'800,
                            4107542399, 1'732'552'445, 4'102'444'799, 253'402'300'799};
  for (const u64 unix_s : kTimes) {
    CAPTURE(unix_s);
    const std::tm got = utc_time(unix_s);
    const auto time = static_cast<time_t>(unix_s);
    std::tm want{};
    REQUIRE(gmtime_r(&time, &want) != nullptr);
    char texts[2][64];
    std::strftime(texts[0], sizeof texts[0], "%Y-%m-%d %H:%M:%S %w %j", &got);
    std::strftime(texts[1], sizeof texts[1], "%Y-%m-%d %H:%M:%S %w %j", &want);
    CHECK(std::string(texts[0]) == texts[1]);
  }
}

struct Lines {
  std::vector<std::pair<LogLevel, std::string>> lines;
  static void keep(void* context, LogLevel level, const char* text) {
    static_cast<Lines*>(context)->lines.emplace_back(level, text);
  }
};

TEST_CASE("a log line is formatted, bounded and free of control characters") {
  Lines got;
  const Log log(Lines::keep, &got, LogLevel::info);
  log.debug("dropped %d", 1);
  log.info("%s has %u of %llu", "a\nb\x1b[2J", 3u, 18446744073709551615ull);
  log.warning("grüße");
  log.error("%s", std::string(5000, 'x').c_str());
  REQUIRE(got.lines.size() == 3);
  CHECK(got.lines[0].first == LogLevel::info);
  CHECK(got.lines[0].second == "a?b?[2J has 3 of 18446744073709551615");
  CHECK(got.lines[1].first == LogLevel::warning);
  CHECK(got.lines[1].second == "grüße");
  CHECK(got.lines[2].first == LogLevel::error);
  CHECK(got.lines[2].second == std::string(Log::kLineBytesMax - 1, 'x'));
  Log().error("nobody listens");  // must not crash
}

}  // namespace
}  // namespace tarn::basics_test
