#include "runtime/store/key_chains.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::store {
void KeyChains::init(std::span<IndexEntry> entries, std::span<u32> heads) {
  entries_ = entries;
  heads_ = heads;
  std::fill(heads_.begin(), heads_.end(), kNoFrame);
}

u32& KeyChains::head_of(const Key& key) const {
  return heads_[key.low & (heads_.size() - 1)];  // the key is a hash already
}

void KeyChains::insert(u32 frame_idx) {
  u32& head = head_of(entries_[frame_idx].key);
  entries_[frame_idx].next = head;
  head = frame_idx;
}

void KeyChains::remove(u32 frame_idx) {
  u32* link = &head_of(entries_[frame_idx].key);
  while (*link != frame_idx) {
    TARN_ASSERT(*link != kNoFrame);
    link = &entries_[*link].next;
  }
  *link = entries_[frame_idx].next;
  entries_[frame_idx].next = kNoFrame;
}

std::optional<RecordRef> KeyChains::find(const Key& key) const {
  std::optional<RecordRef> best;
  for (u32 i = head_of(key); i != kNoFrame; i = entries_[i].next) {
    const IndexEntry& record = entries_[i];
    if (!(record.key == key) || record.life != Life::published) continue;
    if (!best || record.generation > best->generation) best = RecordRef{i, record.generation};
  }
  return best;
}

bool KeyChains::is_on_its_way(const Key& key) const {
  for (u32 i = head_of(key); i != kNoFrame; i = entries_[i].next) {
    if (entries_[i].key == key && entries_[i].life != Life::published) return true;
  }
  return false;
}

}  // namespace tarn::store
