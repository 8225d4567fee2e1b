#include "runtime/store/evictable_window.h"

namespace tarn::store {
namespace {

bool may_go(const IndexEntry& entry, Takes takes) {
  if (entry.life == Life::free) return true;
  if (entry.life != Life::published || entry.holds > 0) return false;
  if (takes == Takes::extents) return entry.kind == Kind::extent;
  return takes == Takes::all || entry.kind != Kind::manifest;
}

}  // namespace

std::optional<u32> first_evictable_window(std::span<const IndexEntry> entries, u32 n, u32 begin,
                                          Takes takes) {
  for (const u32 start : {begin, u32{0}}) {
    u32 first = start, end = start;  // frames [first, end) can be evicted
    while (end < entries.size() && end - first < n) {
      const u32 record = first_frame_of(entries, end);
      const IndexEntry& there = entries[record];
      end = record + (there.life == Life::free ? 1 : there.n_frames);
      if (!may_go(there, takes)) first = end;
    }
    if (end - first >= n) return first;
  }
  return std::nullopt;
}

std::optional<u32> last_evictable_window(std::span<const IndexEntry> entries, u32 n, Takes takes) {
  const u32 n_frames = static_cast<u32>(entries.size());
  for (u32 first = n_frames, end = n_frames; first > 0;) {
    first = first_frame_of(entries, first - 1);
    if (!may_go(entries[first], takes)) end = first;
    if (end - first >= n) return end - n;
  }
  return std::nullopt;
}

}  // namespace tarn::store
