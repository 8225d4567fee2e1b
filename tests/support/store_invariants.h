// The invariants of a store's index, asserted of what it shows of its frames.
#pragma once

#include <array>

#include "platform/base/assert.h"
#include "runtime/store/record_index.h"

namespace tarn::test {

inline void check_invariants(const store::RecordIndex& index) {
  using store::Kind, store::kNoFrame, store::Life;
  u32 n_free = 0, n_used = 0, n_published = 0;
  std::array<u32, 2> n_oldest{}, n_youngest{}, n_evictable{};  // of extents, and of all others
  for (u32 i = 0; i < index.n_frames(); ++i) {
    const store::IndexEntry& entry = index.frame(i);
    TARN_ASSERT(entry.life != Life::seen);
    if (entry.life == Life::free) ++n_free;
    if (entry.life == Life::free || entry.life == Life::part) continue;
    n_used += entry.n_frames;
    for (u32 k = 1; k < entry.n_frames; ++k) {
      TARN_ASSERT(index.frame(i + k).life == Life::part && index.frame(i + k).older == i);
    }
    TARN_ASSERT(entry.life != Life::writing || index.is_on_its_way(entry.key));
    if (entry.life != Life::published) continue;
    ++n_published;
    const auto found = index.find(entry.key);  // a younger one, where it is being replaced
    TARN_ASSERT(found && found->generation >= entry.generation);
    if (entry.holds > 0) continue;
    const u32 of = entry.kind == Kind::extent ? 0 : 1;
    ++n_evictable[of];
    n_oldest[of] += entry.older == kNoFrame;
    n_youngest[of] += entry.younger == kNoFrame;
    if (entry.younger == kNoFrame) continue;
    const store::IndexEntry& younger = index.frame(entry.younger);
    TARN_ASSERT(younger.older == i && younger.life == Life::published && younger.holds == 0);
    TARN_ASSERT((younger.kind == Kind::extent) == (of == 0));
  }
  TARN_ASSERT(n_free == index.n_free() && n_free + n_used == index.n_frames());
  TARN_ASSERT(n_published == index.n_records());
  for (const u32 of : {0u, 1u}) {
    TARN_ASSERT(n_oldest[of] == (n_evictable[of] > 0) && n_youngest[of] == n_oldest[of]);
  }
}

}  // namespace tarn::test
