#include "platform/clock/clock.h"

#include <time.h>

#include <chrono>

namespace tarn {

void system_nap(u64 ns) {
  const timespec nap{static_cast<time_t>(ns / 1'000'000'000u),
                     static_cast<long>(ns % 1'000'000'000u)};
  (void)nanosleep(&nap, nullptr);  // a signal may end it early, which does no harm
}

std::tm utc_time(u64 unix_s) {
  using std::chrono::days;
  const std::chrono::sys_seconds time{std::chrono::seconds(unix_s)};
  const auto day = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::tm out{};
  out.tm_year = static_cast<int>(date.year()) - 1900;
  out.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  out.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  out.tm_hour = static_cast<int>(clock.hours().count());
  out.tm_min = static_cast<int>(clock.minutes().count());
  out.tm_sec = static_cast<int>(clock.seconds().count());
  out.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  out.tm_yday = static_cast<int>((day - std::chrono::sys_days(date.year() / 1 / 1)).count());
  return out;
}

u64 SystemClock::now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail: the clock and the pointer are valid
  return static_cast<u64>(now.tv_sec) * 1'000'000'000u + static_cast<u64>(now.tv_nsec);
}

u64 SystemClock::unix_s() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec > 0 ? static_cast<u64>(now.tv_sec) : 0;
}

}  // namespace tarn
