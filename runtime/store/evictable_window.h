// Finds consecutive frames that can be evicted. Pure functions of the index's entries.
#pragma once

#include <optional>
#include <span>

#include "runtime/store/index_entry.h"

namespace tarn::store {

// What may be evicted; each value includes the one before it.
enum class Takes : u8 { extents, all_but_manifests, all };

// The first window of n frames without a held or spared record, from `begin` on, then from the
// file's begin. The index's cursor follows the writes around the file, so the records after it are
// nearly the oldest.
std::optional<u32> first_evictable_window(std::span<const IndexEntry> entries, u32 n, u32 begin,
                                          Takes takes);
// The last such window of the file.
std::optional<u32> last_evictable_window(std::span<const IndexEntry> entries, u32 n, Takes takes);

}  // namespace tarn::store
