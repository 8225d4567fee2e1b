// runtime/store/evictable_window.h
//
// Which frames in a row can be had by eviction. Pure functions of the index's entries.
#pragma once

#include <optional>
#include <span>

#include "runtime/store/index_entry.h"

namespace tarn::store {

// What may be evicted; each value includes the one before it.
enum class Takes : u8 { extents, all_but_manifests, all };

// The first window of n frames, from `begin` on, then from the file's begin, that has no record
// which is held or to be spared. The index's cursor follows the writes around the file, so what
// follows it is the oldest, or nearly.
std::optional<u32> first_evictable_window(std::span<const IndexEntry> entries, u32 n, u32 begin,
                                          Takes takes);
// The last of the file.
std::optional<u32> last_evictable_window(std::span<const IndexEntry> entries, u32 n, Takes takes);

}  // namespace tarn::store
