// A first-in first-out queue of fixed capacity. The caller never pushes to a full queue and never
// pops from an empty one: it counts what is in flight.
#pragma once

#include <array>

#include "platform/base/assert.h"
#include "platform/base/types.h"

namespace tarn {

template <class T, u32 kCapacity>
class RingQueue {
 public:
  bool empty() const { return count_ == 0; }
  const T& front() const {
    TARN_DEBUG_ASSERT(count_ > 0);
    return items_[first_];
  }
  void push(const T& item) {
    TARN_ASSERT(count_ < kCapacity);
    items_[(first_ + count_++) % kCapacity] = item;
  }
  T pop() {
    TARN_ASSERT(count_ > 0);
    const T item = items_[first_];
    first_ = (first_ + 1) % kCapacity;
    --count_;
    return item;
  }

 private:
  std::array<T, kCapacity> items_{};
  u32 first_ = 0;
  u32 count_ = 0;
};

}  // namespace tarn
