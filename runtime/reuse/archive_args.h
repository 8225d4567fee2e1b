// Shared by the parts of the archive. Memory is lent; nothing is allocated.
#pragma once

#include "platform/clock/clock.h"
#include "platform/cpu/crc32c.h"
#include "platform/log/log.h"
#include "runtime/config/fixed_text.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/method/selector.h"
#include "runtime/reuse/blocking_store.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/save_memory.h"

namespace tarn::reuse {

// Tags of operations: below are the mover's, behind it a copy's, then those of extents.
inline constexpr u64 kWriterTag = kv::kMovesMax;
static_assert(kWriterTag + 1 + kOpsTags <= kv::kExtentTag);
inline constexpr u64 kWaitNs = 10'000'000;  // of one look at the disk

struct ArchiveArgs {
  kv::KvCache* kv = nullptr;  // with tiers
  KvIdentity identity{};
  FixedText<kManifestModelBytesMax> model_name{};  // to be shown
  const Crc32c* crc = nullptr;
  Clock* clock = nullptr;
  Log log{};
  u64 checkpoint_ns = 0;  // between two; 0: there are none
  u32 spills_max = 0;     // groups asked for at one time
  SaveMemory memory{};
  method::Selector* selector = nullptr;  // hears which index's records a manifest names

  kv::Tiers& tiers() const { return kv->tiers(); }
  store::Store& store() const { return kv->tiers().store.store(); }
};

}  // namespace tarn::reuse
