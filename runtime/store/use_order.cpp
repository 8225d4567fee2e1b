#include "runtime/store/use_order.h"

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

}  // namespace tarn::store
