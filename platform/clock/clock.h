// platform/clock/clock.h
//
// Time behind an interface, so that tests run in virtual time. Monotonic: nothing in the core
// depends on the wall clock, which is there to be shown to people.
#pragma once

#include "platform/base/types.h"

namespace tarn {

class Clock {
 public:
  virtual u64 now_ns() = 0;           // monotonic; the zero point is arbitrary
  virtual u64 unix_s() { return 0; }  // the wall clock's, wrong as it may be; 0: there is none

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
  void advance_ns(u64 by_ns) { now_ns_ += by_ns; }

 private:
  u64 now_ns_ = 0;
};

}  // namespace tarn
