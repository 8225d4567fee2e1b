// The bytes that a store may still write: a bucket of a day's bytes, which fills by the monotonic
// clock while the store is open. Every head on disk has the level (level_for_head()), so that a
// restart continues with it.
#pragma once

#include "platform/clock/clock.h"

namespace tarn::store {

class WriteBudget {
 public:
  // Makes a full bucket that does not refill yet; 0: no limit.
  void init(Clock& clock, u64 bytes_per_day);
  // Refills from now on, from this level.
  void start(u64 level_bytes);
  void stop() { is_filling_ = false; }

  u64 left_bytes() const;  // now
  bool affords(u64 n_bytes) const { return bytes_per_day_ == 0 || left_bytes() >= n_bytes; }
  u64 level_for_head() const { return bytes_per_day_ > 0 ? level_bytes_ : ~u64{0}; }

  // Adds the bytes gained since the last call. The functions below do not.
  void refill();
  bool has(u64 n_bytes) const { return bytes_per_day_ == 0 || level_bytes_ >= n_bytes; }
  void spend(u64 n_bytes);  // which the bucket has
  // Spends at most n_bytes, as many as there are; returns the number. give_back() undoes it.
  u64 spend_up_to(u64 n_bytes);
  void give_back(u64 n_bytes) { level_bytes_ += n_bytes; }

 private:
  u64 filled_bytes() const;

  Clock* clock_ = nullptr;
  u64 bytes_per_day_ = 0;
  u64 level_bytes_ = 0;
  u64 at_ns_ = 0;  // when the level was true
  bool is_filling_ = false;
};

}  // namespace tarn::store
