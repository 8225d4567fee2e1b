// The parts that the store's opening, reader and writer share. Store owns them.
#pragma once

#include "runtime/store/store_ops.h"

namespace tarn::store {

struct StoreParts {
  StoreLimits limits{};
  Clock* clock = nullptr;
  const Crc32c* crc = nullptr;
  StoreStats stats{};
  StoreFile file{stats};
  RecordIndex index{};
  StoreOps ops{file, index, stats};
  std::span<std::byte> labels{};  // both sectors

  // The limits are checked. Over nothing it counts.
  void carve(Carver& carver, const StoreLimits& limits);

  u64 head_bytes(RecordRef ref) const { return shape_of(ref).head_bytes(); }
  RecordShape shape_of(RecordRef ref) const {
    const IndexEntry& entry = index.entry(ref);
    return {entry.payload_bytes, entry.n_tokens};
  }
};

}  // namespace tarn::store
