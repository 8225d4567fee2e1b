// How often something took how long, for Prometheus: a fixed row of upper bounds, one for all.
#pragma once

#include <array>

#include "platform/base/types.h"

namespace tarn::daemon {

class Histogram {
 public:
  static constexpr std::array kBounds_s = {0.001, 0.0025, 0.005, 0.01,  0.025, 0.05,
                                           0.1,   0.25,   0.5,   1.0,   2.5,   5.0,
                                           10.0,  25.0,   50.0,  100.0, 250.0, 500.0};

  void add_ns(u64 ns) {
    constexpr f64 kSecond_ns = 1e9;
    const f64 seconds = static_cast<f64>(ns) / kSecond_ns;
    u32 i = 0;
    while (i < kBounds_s.size() && seconds > kBounds_s[i]) ++i;
    ++counts_[i];
    ++n_;
    sum_s_ += seconds;
  }
  // Returns counts of values up to each bound; the last one is beyond all.
  const std::array<u64, kBounds_s.size() + 1>& counts() const { return counts_; }
  u64 n() const { return n_; }
  f64 sum_s() const { return sum_s_; }

 private:
  std::array<u64, kBounds_s.size() + 1> counts_{};
  u64 n_ = 0;
  f64 sum_s_ = 0;
};

}  // namespace tarn::daemon
