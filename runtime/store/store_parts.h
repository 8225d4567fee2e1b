// The parts that the store's scan, reader and writer share. Store owns them.
#pragma once

#include "runtime/store/store_health.h"
#include "runtime/store/store_ops.h"

namespace tarn::store {

struct StoreParts {
  StoreLimits limits{};
  Clock* clock = nullptr;
  const Crc32c* crc = nullptr;
  StoreStats stats{};
  StoreFile file{};
  RecordIndex index{};
  StoreHealth health{file, stats};
  StoreOps ops{file, index, stats};

  u64 head_bytes(RecordRef ref) const { return shape_of(ref).head_bytes(); }
  RecordShape shape_of(RecordRef ref) const {
    const IndexEntry& entry = index.entry(ref);
    return {entry.payload_bytes, entry.n_tokens};
  }
};

}  // namespace tarn::store
