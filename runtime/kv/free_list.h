// The free places of a fixed table, by index. At first all are, the lowest are taken first.
//
// Invariant: free places + places in use = size.
#pragma once

#include "platform/base/assert.h"
#include "runtime/arena/carver.h"

namespace tarn::kv {

class FreeList {
 public:
  void init(Carver& carver, u32 size) {
    *this = FreeList();
    next_ = carver.take<u32>("free", size);
    TARN_ASSERT(next_.size() < kNone);
    for (u32 idx = this->size(); idx-- > 0;) put(idx);
  }
  u32 take() {
    TARN_ASSERT(head_ != kNone);
    const u32 idx = head_;
    head_ = next_[idx];
    --n_free_;
    return idx;
  }
  void put(u32 idx) {
    next_[idx] = head_;
    head_ = idx;
    ++n_free_;
  }
  u32 size() const { return static_cast<u32>(next_.size()); }
  u32 n_free() const { return n_free_; }

 private:
  static constexpr u32 kNone = ~u32{0};
  std::span<u32> next_{};  // [size], singly linked
  u32 head_ = kNone;
  u32 n_free_ = 0;
};

}  // namespace tarn::kv
