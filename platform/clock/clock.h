// platform/clock/clock.h
//
// Time behind an interface, so that tests run in virtual time. Monotonic only: nothing in the core
// depends on the wall clock.
#pragma once

#include "platform/base/types.h"

namespace tarn {

class Clock {
 public:
  virtual u64 now_ns() = 0;  // monotonic; the zero point is arbitrary

 protected:
  ~Clock() = default;
};

class SystemClock final : public Clock {
 public:
  u64 now_ns() override;
};

class VirtualClock final : public Clock {
 public:
  u64 now_ns() override { return now_ns_; }
  void advance_ns(u64 by_ns) { now_ns_ += by_ns; }

 private:
  u64 now_ns_ = 0;
};

}  // namespace tarn
