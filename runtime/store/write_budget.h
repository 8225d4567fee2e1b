// The bytes that a store may still write: a bucket of a day's bytes, which fills by the monotonic
// clock while the store is open. Every head on disk has the level (level_for_head()). A restart
// continues with the youngest head's: a box that restarts all day does not write all day. Opening
// without a limit leaves a full bucket.
#pragma once

#include <algorithm>

#include "platform/clock/clock.h"

namespace tarn::store {

class WriteBudget {
 public:
  // Fills from now on, from this level. 0 bytes a day: no limit.
  void start(Clock& clock, u64 bytes_per_day, u64 level_bytes) {
    clock_ = &clock;
    bytes_per_day_ = bytes_per_day;
    level_bytes_ = std::min(bytes_per_day, level_bytes);
    at_ns_ = clock.now_ns();
  }

  u64 left_bytes() const {  // now
    return std::min(bytes_per_day_, level_bytes_ + filled_bytes());
  }
  // Adds the bytes gained since the last call. The functions below do not.
  void refill() {
    const u64 filled = filled_bytes();
    if (filled == 0) return;  // less than a byte so far: the time is kept
    at_ns_ = clock_->now_ns();
    level_bytes_ = std::min(bytes_per_day_, level_bytes_ + filled);
  }
  u64 level_for_head() const { return bytes_per_day_ > 0 ? level_bytes_ : ~u64{0}; }
  bool has(u64 n_bytes) const { return bytes_per_day_ == 0 || level_bytes_ >= n_bytes; }
  void spend(u64 n_bytes) { level_bytes_ -= std::min(level_bytes_, n_bytes); }

 private:
  // Bytes that the bucket gained since at_ns_.
  u64 filled_bytes() const {
    if (bytes_per_day_ == 0) return 0;
    constexpr u64 kDayNs = u64{24} * 3600 * 1'000'000'000;
    const u64 passed_ns = std::min(clock_->now_ns() - at_ns_, kDayNs);
    return static_cast<u64>(static_cast<f64>(bytes_per_day_) * static_cast<f64>(passed_ns) /
                            f64{kDayNs});
  }

  Clock* clock_ = nullptr;
  u64 bytes_per_day_ = 0;
  u64 level_bytes_ = 0;
  u64 at_ns_ = 0;  // when the level was true
};

}  // namespace tarn::store
