#include "platform/clock/clock.h"

#include <time.h>

namespace tarn {

void system_nap(u64 ns) {
  const timespec nap{static_cast<time_t>(ns / 1'000'000'000u),
                     static_cast<long>(ns % 1'000'000'000u)};
  (void)nanosleep(&nap, nullptr);  // a signal may end it early, which does no harm
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
