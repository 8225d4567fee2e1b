// The evictable records in order of their last use. Extents have an order of their own, because
// they are copies and are evicted first.
//
// Invariant: the two orders have exactly the published records without holds.
#pragma once

#include <span>

#include "runtime/store/index_entry.h"

namespace tarn::store {

class UseOrder {
 public:
  void init(std::span<IndexEntry> entries) {  // both orders are empty
    entries_ = entries;
    lists_ = {};
  }
  void push_youngest(u32 frame_idx) {
    IndexEntry& entry = entries_[frame_idx];
    List& list = list_of(entry);
    entry.older = list.youngest;
    entry.younger = kNoFrame;
    (list.youngest == kNoFrame ? list.oldest : entries_[list.youngest].younger) = frame_idx;
    list.youngest = frame_idx;
  }
  void remove(u32 frame_idx) {
    IndexEntry& entry = entries_[frame_idx];
    List& list = list_of(entry);
    (entry.older == kNoFrame ? list.oldest : entries_[entry.older].younger) = entry.younger;
    (entry.younger == kNoFrame ? list.youngest : entries_[entry.younger].older) = entry.older;
    entry.older = entry.younger = kNoFrame;
  }
  bool is_empty() const { return oldest() == kNoFrame; }
  bool has_extents() const { return lists_[0].oldest != kNoFrame; }
  // The record to evict first: an extent if there is one.
  u32 oldest() const { return has_extents() ? lists_[0].oldest : lists_[1].oldest; }

 private:
  struct List {
    u32 oldest = kNoFrame, youngest = kNoFrame;
  };
  List& list_of(const IndexEntry& entry) { return lists_[entry.kind == Kind::extent ? 0 : 1]; }

  std::span<IndexEntry> entries_{};
  std::array<List, 2> lists_{};  // of extents, and of all others
};

}  // namespace tarn::store
