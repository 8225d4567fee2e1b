#include "platform/cpu/sync.h"

#include <ctime>

namespace tarn {

Condition::Condition() {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&condition_, &attributes);
  pthread_condattr_destroy(&attributes);
}

void Condition::wait_for(Lock& lock, u64 timeout_ns) {
  constexpr u64 kNsPerS = 1'000'000'000;
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const u64 ns = static_cast<u64>(until.tv_nsec) + timeout_ns % kNsPerS;
  until.tv_sec += static_cast<time_t>(timeout_ns / kNsPerS + ns / kNsPerS);
  until.tv_nsec = static_cast<long>(ns % kNsPerS);
  pthread_cond_timedwait(&condition_, &lock.mutex_.mutex_, &until);
}

}  // namespace tarn
