// A hash table over the keys of records. A bucket is a chain of entries, linked by their `next`.
//
// Invariant: the chains have exactly the keys of records that are reserved to published.
#pragma once

#include <optional>
#include <span>

#include "platform/base/bump.h"
#include "runtime/store/index_entry.h"

namespace tarn::store {

class KeyChains {
 public:
  static u64 bytes(u32 n_frames);
  void init(std::span<IndexEntry> entries, Bump& memory);  // all chains are empty

  void insert(u32 frame_idx);
  void remove(u32 frame_idx);
  // The published record of this key; the youngest if there are two.
  std::optional<RecordRef> find(const Key& key) const;
  // Whether a record of this key is reserved, writing or verified.
  bool is_on_its_way(const Key& key) const;
  u32 count() const;  // walks all chains

 private:
  u32& head_of(const Key& key) const;

  std::span<IndexEntry> entries_{};
  std::span<u32> heads_{};
};

}  // namespace tarn::store
