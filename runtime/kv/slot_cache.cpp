#include "runtime/kv/slot_cache.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "platform/base/assert.h"

namespace tarn::kv {

u64 SlotCache::region_bytes(u32 capacity, u32 slot_bytes) {
  Carver carver;
  SlotCache().init(carver, capacity, slot_bytes);
  return align_up(*carver.n_bytes().get(), Carver::kAlignment);
}

u32 SlotCache::capacity_of(u64 region_bytes, u32 slot_bytes) {
  constexpr u64 kPieces = 4;  // whose alignment is counted
  const u64 entry_bytes = slot_bytes + 2 * sizeof(Entry) + sizeof(u16);
  const u64 n = (region_bytes - std::min(region_bytes, kPieces * Carver::kAlignment)) / entry_bytes;
  return static_cast<u32>(std::min<u64>(n, kCellsMax));
}

void SlotCache::init(Carver& carver, u32 capacity, u32 slot_bytes) {
  TARN_ASSERT(capacity <= kCellsMax);
  *this = SlotCache();
  bytes_ = carver.rows<u8>("slots", capacity, slot_bytes).data();
  entries_ = carver.take<Entry>("entries", capacity);
  merged_ = carver.take<Entry>("merged", capacity);
  cells_ = carver.take<u16>("cells", capacity);
  capacity_ = capacity;
  slot_bytes_ = slot_bytes;
}

void SlotCache::truncate(u32 slot_end) {
  while (n_ > 0 && entries_[n_ - 1].slot >= slot_end) --n_;
}

u32 SlotCache::take(std::span<WantedSlot> wanted, std::span<Found> found) {
  u32 n_missing = 0;
  u64 n_found = 0;
  u64 next = 0;
  for (Entry& entry : entries_.first(n_)) {
    while (next < wanted.size() && wanted[next].slot < entry.slot) {
      wanted[n_missing++] = wanted[next++];
    }
    entry.heat = static_cast<u8>(entry.heat - entry.heat / 2 - (entry.heat > 0));
    if (next == wanted.size() || wanted[next].slot != entry.slot) continue;
    entry.heat = static_cast<u8>(std::min(entry.heat + kUse, 255u));
    found[found.size() - ++n_found] = {entry.cell, wanted[next++].rank};
  }
  while (next < wanted.size()) wanted[n_missing++] = wanted[next++];
  return n_missing;
}

void SlotCache::copy(std::span<const Found> found, u8* out) const {
  constexpr u64 kAhead = 8;  // slots asked for before they are copied
  for (u64 i = 0; i < found.size(); ++i) {
    if (i + kAhead < found.size()) {
      const u8* next = bytes_ + u64{found[i + kAhead].cell} * slot_bytes_;
      for (u64 at = 0; at < slot_bytes_; at += 64) __builtin_prefetch(next + at);
    }
    std::memcpy(out + u64{found[i].rank} * slot_bytes_, bytes_ + u64{found[i].cell} * slot_bytes_,
                slot_bytes_);
  }
}

// Frees cells for at most n_wanted slots, the coldest first, none as warm as a new one.
u32 SlotCache::make_room(u32 n_wanted, std::span<u16> cells) {
  std::array<u32, kUse> n_of_heat{};
  for (const Entry& entry : entries_.first(n_)) {
    if (entry.heat < kUse) ++n_of_heat[entry.heat];
  }
  const u32 n_unused = capacity_ - n_;
  u32 n_to_go = n_wanted - std::min(n_wanted, n_unused);
  u32 coldest_kept = 0;  // all that are colder go, and of its heat the first n_to_go
  while (coldest_kept < kUse && n_of_heat[coldest_kept] <= n_to_go) {
    n_to_go -= n_of_heat[coldest_kept++];
  }
  if (coldest_kept == kUse) n_to_go = 0;
  u32 n_cells = 0, n_kept = 0;
  for (const Entry& entry : entries_.first(n_)) {
    const bool is_last_to_go = entry.heat == coldest_kept && n_to_go > 0;
    if (is_last_to_go) --n_to_go;
    if (entry.heat < coldest_kept || is_last_to_go) {
      cells[n_cells++] = entry.cell;
    } else {
      entries_[n_kept++] = entry;
    }
  }
  n_ = n_kept;
  return n_cells;
}

void SlotCache::put(std::span<const WantedSlot> missing, const u8* bytes) {
  const u32 n_missing = static_cast<u32>(missing.size());
  u32 n_cells = make_room(n_missing, cells_);
  if (n_ + n_cells < capacity_ && n_cells < n_missing) {  // cells that were never used, or cut
    std::fill(merged_.begin(), merged_.end(), Entry{});
    for (const Entry& entry : entries_.first(n_)) merged_[entry.cell].heat = 1;
    for (const u16 cell : cells_.first(n_cells)) merged_[cell].heat = 1;
    for (u32 cell = 0; cell < capacity_ && n_cells < n_missing; ++cell) {
      if (merged_[cell].heat == 0) cells_[n_cells++] = static_cast<u16>(cell);
    }
  }
  // Neighbours of the missing ones, from another one on each time, and merged with what stays.
  constexpr u32 kStride = 2654435769;  // 2^32 over the golden ratio
  const u32 start = n_cells < n_missing ? ++n_puts_ * kStride % n_missing : 0;
  const u32 n_wrapped = start + n_cells - std::min(start + n_cells, n_missing);
  u32 n_merged = 0, next = 0;
  for (u32 i = 0; i < n_cells; ++i) {
    const WantedSlot& wanted = missing[i < n_wrapped ? i : start + i - n_wrapped];
    while (next < n_ && entries_[next].slot < wanted.slot) merged_[n_merged++] = entries_[next++];
    merged_[n_merged++] = {wanted.slot, cells_[i], static_cast<u8>(kUse)};
    std::memcpy(bytes_ + u64{cells_[i]} * slot_bytes_, bytes + u64{wanted.rank} * slot_bytes_,
                slot_bytes_);
  }
  while (next < n_) merged_[n_merged++] = entries_[next++];
  n_ = n_merged;
  std::swap(entries_, merged_);
}

}  // namespace tarn::kv
