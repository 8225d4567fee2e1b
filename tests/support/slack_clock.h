// Virtual time with a GPU: the fake device hangs until `done_ns`, and then has done its work.
// Reading the clock takes a microsecond; a nap is longer by the timers' slack.
#pragma once

#include "platform/clock/clock.h"
#include "tests/support/fake_device.h"

namespace tarn::test {

class SlackClock final : public Clock {
 public:
  static constexpr u64 kSlackNs = 70'000;

  explicit SlackClock(FakeDevice& device) : device_(device) {}
  u64 now_ns() override {
    now_ns_ += 1'000;
    device_.hang(now_ns_ < done_ns);
    return now_ns_;
  }
  void nap_ns(u64 ns) override {
    ++n_naps;
    now_ns_ += ns + kSlackNs;
  }
  // The device's work, present and new, takes this long; kForEver: it hangs.
  static constexpr u64 kForEver = ~u64{0} / 2;
  void takes(u64 ns) {
    done_ns = now_ns_ + ns;
    device_.hang();
  }

  u64 done_ns = 0;
  u64 n_naps = 0;

 private:
  FakeDevice& device_;
  u64 now_ns_ = 0;
};

}  // namespace tarn::test
