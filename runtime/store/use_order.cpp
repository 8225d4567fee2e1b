#include "runtime/store/use_order.h"

#include "platform/base/assert.h"

namespace tarn::store {

void UseOrder::init(std::span<IndexEntry> entries) {
  entries_ = entries;
  lists_ = {};
}

void UseOrder::push_youngest(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  List& list = list_of(entry);
  entry.older = list.youngest;
  entry.younger = kNoFrame;
  (list.youngest == kNoFrame ? list.oldest : entries_[list.youngest].younger) = frame_idx;
  list.youngest = frame_idx;
}

void UseOrder::remove(u32 frame_idx) {
  IndexEntry& entry = entries_[frame_idx];
  List& list = list_of(entry);
  (entry.older == kNoFrame ? list.oldest : entries_[entry.older].younger) = entry.younger;
  (entry.younger == kNoFrame ? list.youngest : entries_[entry.younger].older) = entry.older;
  entry.older = entry.younger = kNoFrame;
}

u32 UseOrder::check_invariants() const {
  u32 n = 0;
  for (const List& list : lists_) {
    for (u32 i = list.oldest; i != kNoFrame; i = entries_[i].younger) {
      TARN_ASSERT(entries_[i].life == Life::published && entries_[i].holds == 0);
      TARN_ASSERT((entries_[i].kind == Kind::extent) == (&list == &lists_[0]));
      ++n;
    }
  }
  return n;
}

}  // namespace tarn::store
