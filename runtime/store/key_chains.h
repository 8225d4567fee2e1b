// A hash table over the keys of records. A bucket is a chain of entries, linked by their `next`.
//
// Invariant: the chains have exactly the keys of records that are writing or published.
#pragma once

#include <optional>
#include <span>

#include "runtime/store/index_entry.h"

namespace tarn::store {

class KeyChains {
 public:
  void init(std::span<IndexEntry> entries, std::span<u32> heads);  // all chains are empty

  void insert(u32 frame_idx);
  void remove(u32 frame_idx);
  // The published record of this key; the youngest if there are two.
  std::optional<RecordRef> find(const Key& key) const;
  bool is_on_its_way(const Key& key) const;  // whether a record of this key is being written

 private:
  u32& head_of(const Key& key) const;

  std::span<IndexEntry> entries_{};
  std::span<u32> heads_{};
};

}  // namespace tarn::store
