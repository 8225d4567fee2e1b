// Time behind an interface, so that tests run in virtual time. The core depends on monotonic time
// alone; the wall clock is only shown to people.
#pragma once

#include <ctime>

#include "platform/base/types.h"

namespace tarn {

void system_nap(u64 ns);

// The date and time in UTC. The C library's functions read the environment, and may allocate.
std::tm utc_time(u64 unix_s);

class Clock {
 public:
  virtual u64 now_ns() = 0;           // monotonic; the zero point is arbitrary
  virtual u64 unix_s() { return 0; }  // the wall clock, which may be wrong; 0: there is none
  // Sleeps for at least `ns`; the system adds its timers' slack, some 50 us.
  virtual void nap_ns(u64 ns) { system_nap(ns); }

 protected:
  ~Clock() = default;
};

class SystemClock final : public Clock {
 public:
  u64 now_ns() override;
  u64 unix_s() override;
};

class VirtualClock final : public Clock {
 public:
  u64 now_ns() override { return now_ns_; }
  void nap_ns(u64 ns) override { now_ns_ += ns; }
  void advance_ns(u64 by_ns) { now_ns_ += by_ns; }

 private:
  u64 now_ns_ = 0;
};

}  // namespace tarn
