// K and V of slots that one KV head of one session has read by selection, for the steps to come:
// what a head wants repeats from step to step, and what is not here comes from the disk (PQCache,
// Zhang et al. 2024, arXiv:2407.12820; there in blocks of 128 tokens, here single slots, since
// memory holds fewer of them than one step wants).
//
//   policy    a slot's heat falls by half in each step and rises when it is wanted: nearly LRU (as
//             LRFU: Lee et al. 2001, IEEE Transactions on Computers 50(12)). A slot that is new has
//             the heat of one use, and goes before those that are colder
//   names     a slot, or whatever else names one: neighbours in order are kept and let go together
//   results   do not depend on it: it holds bytes that were verified, of slots that do not change
//   thread    one at a time
//
// Invariant: entries ascend by slot; no two have one cell; n <= capacity.
#pragma once

#include <span>

#include "runtime/arena/carver.h"
#include "runtime/kv/mover.h"

namespace tarn::kv {

class SlotCache {
 public:
  static u64 region_bytes(u32 capacity, u32 slot_bytes);
  // Slots of which a region of so many bytes holds the most.
  static u32 capacity_of(u64 region_bytes, u32 slot_bytes);
  void init(Carver& carver, u32 capacity, u32 slot_bytes);
  void clear() { n_ = 0; }
  // Keeps what lies before the slot.
  void truncate(u32 slot_end);

  // A wanted slot that is here: its cell, and its rank among the wanted ones.
  struct Found {
    u32 cell = 0;
    u32 rank = 0;
  };
  // Looks up one step's slots. Of the wanted ones, ascending, those that are here go to the end of
  // `found`, which has room for all, and the others to the front of `wanted`; returns how many the
  // latter are.
  u32 take(std::span<WantedSlot> wanted, std::span<Found> found);
  // After take(), before put(): copies them to `out` + rank * slot bytes.
  void copy(std::span<const Found> found, u8* out) const;
  // After take(): puts in as many of the missing ones as are warmer than what must go for them.
  void put(std::span<const WantedSlot> missing, const u8* bytes);

 private:
  struct Entry {
    u32 slot = 0;
    u16 cell = 0;
    u8 heat = 0;
  };
  static constexpr u32 kCellsMax = 65535;
  static constexpr u32 kUse = 32;  // of heat

  u32 make_room(u32 n_wanted, std::span<u16> cells);

  std::span<Entry> entries_{};  // [capacity]
  std::span<Entry> merged_{};   // [capacity], scratch of put()
  std::span<u16> cells_{};      // [capacity], likewise
  u8* bytes_ = nullptr;         // [capacity, slot_bytes]
  u32 capacity_ = 0, slot_bytes_ = 0, n_ = 0;
  u32 n_puts_ = 0;
};

}  // namespace tarn::kv
