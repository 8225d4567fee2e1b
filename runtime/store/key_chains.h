// A hash table over the keys of records. A bucket is a chain of entries, linked by their `next`.
//
// Invariant: the chains have exactly the keys of records that are writing or published.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "platform/base/assert.h"
#include "runtime/store/index_entry.h"

namespace tarn::store {

class KeyChains {
 public:
  // All chains are empty then.
  void init(std::span<IndexEntry> entries, std::span<u32> heads) {
    entries_ = entries;
    heads_ = heads;
    std::fill(heads_.begin(), heads_.end(), kNoFrame);
  }

  void insert(u32 frame_idx) {
    u32& head = head_of(entries_[frame_idx].key);
    entries_[frame_idx].next = head;
    head = frame_idx;
  }
  void remove(u32 frame_idx) {
    u32* link = &head_of(entries_[frame_idx].key);
    while (*link != frame_idx) {
      TARN_ASSERT(*link != kNoFrame);
      link = &entries_[*link].next;
    }
    *link = entries_[frame_idx].next;
    entries_[frame_idx].next = kNoFrame;
  }
  // The published record of this key; the youngest if there are two.
  std::optional<RecordRef> find(const Key& key) const {
    std::optional<RecordRef> best;
    for (u32 i = head_of(key); i != kNoFrame; i = entries_[i].next) {
      const IndexEntry& record = entries_[i];
      if (!(record.key == key) || record.life != Life::published) continue;
      if (!best || record.generation > best->generation) best = RecordRef{i, record.generation};
    }
    return best;
  }
  // Whether a record of this key is being written.
  bool is_on_its_way(const Key& key) const {
    for (u32 i = head_of(key); i != kNoFrame; i = entries_[i].next) {
      if (entries_[i].key == key && entries_[i].life != Life::published) return true;
    }
    return false;
  }

 private:
  u32& head_of(const Key& key) const {
    return heads_[key.low & (heads_.size() - 1)];  // the key is a hash already
  }

  std::span<IndexEntry> entries_{};
  std::span<u32> heads_{};
};

}  // namespace tarn::store
