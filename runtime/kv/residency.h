// Where each group's bytes are: in one of the frames of memory, in a record of the store, or both:
// the states and their edges. Who moves what, and when, is the mover's (mover.h).
//
//   free      in no sequence
//   reserved  named by a sequence, without bytes and without a frame
//   writing   its owner fills its frame
//   memory    sealed; the frame has the only copy
//   storing   the same, and the store writes a record of it (reserved to verified there)
//   both      sealed, in a frame, and published as a record that is pinned in the store
//   disk      the record alone
//   loading   a frame waits for what the store reads of the record, and verifies
//   lost      sealed, and its bytes are nowhere any more
//
//   reserved -> writing -> memory <-> storing -> both <-> disk; disk -> loading -> both | lost;
//   reserved -> disk (adopted: its record was there before it);
//   memory, both -> writing (reopened by truncate); anything but free -> free (released).
//   A group that is released while the store has its frame leaves the frame lent until the store
//   gives it back. Each move carries a ticket with the group's generation, which is asserted, or
//   found stale, at its end.
//
// pins      bytes are read through a pin alone; what is pinned is neither evicted nor begun to be
//           stored. Tails are always in memory, and need none
// order     groups without pins whose frame may be had are in the eviction queue: dirty ones in
//           `memory`, clean ones in `both`
// thread    the engine's; group() of a group in memory from any, while no edge is taken
// when full taking a frame asserts: the mover makes room first
//
// Invariant: frames in use = groups in writing, memory, storing, both, loading;
//            free frames + lent frames + frames in use = n_frames.
#pragma once

#include <array>
#include <span>

#include "runtime/kv/eviction_queue.h"
#include "runtime/kv/free_list.h"
#include "runtime/kv/group_pool.h"
#include "runtime/store/store.h"

namespace tarn::kv {

enum class Where : u8 { free, reserved, writing, memory, storing, both, disk, loading, lost };
inline constexpr u32 kWheres = 9;

// A frame on its way to or from the store, and the group that it was for when that began.
struct Ticket {
  u32 group_idx = ~u32{0};
  u32 generation = 0;
  u32 frame = ~u32{0};
};

struct ResidencyStats {
  std::array<u32, kWheres> counts{};
  u32 n_unused = 0;       // loaded for the running step, or being loaded, and not pinned since
  u32 n_lent_frames = 0;  // whose group is gone, and the disk still reads or writes them
  u32 n(Where where) const { return counts[static_cast<u32>(where)]; }
};

enum class LoadEnd : u8 {
  whole,      // its bytes are here
  abandoned,  // as if never asked
  lost,       // the frame is still the disk's until give_back()
};

class Residency final : public GroupMemory {
 public:
  struct Memory {
    GroupShape shape{};
    u32 n_groups = 0, n_frames = 0;
    std::span<std::byte> frames{};  // of one group's size each; at a multiple of 4 KiB
    store::Store* store = nullptr;
  };
  void init(Carver& carver, const Memory& memory);

  // GroupMemory. A reserved group gets a free frame at its first use.
  u8* group(u32 group_idx) override;
  void on_acquire(u32 group_idx) override;
  void on_seal(u32 group_idx) override;
  void on_reopen(u32 group_idx) override;
  void on_release(u32 group_idx) override;

  struct Entry {
    store::RecordRef record{};
    u32 frame = EvictionQueue::kNone;
    u32 generation = 0;
    u32 pins = 0;
    Where where = Where::free;
    bool is_unused = false;  // since it was loaded
  };
  const Entry& entry(u32 group_idx) const { return entries_[group_idx]; }
  Where where(u32 group_idx) const { return entries_[group_idx].where; }
  const GroupShape& shape() const { return memory_.shape; }
  u32 n_frames() const { return free_frames_.size(); }
  u32 n_free_frames() const { return free_frames_.n_free(); }
  std::span<std::byte> frame(u32 frame) const {
    return memory_.frames.subspan(frame * shape().group_bytes(), shape().group_bytes());
  }
  const ResidencyStats& stats() const { return stats_; }
  EvictionQueue& queue() { return queue_; }
  const EvictionQueue& queue() const { return queue_; }

  // reserved -> disk, before it is sealed: the record holds the bytes of a full group, and is
  // pinned from now on.
  void adopt(u32 group_idx, store::RecordRef record);
  void pin(u32 group_idx);  // its bytes are in memory: memory, storing, both or writing
  void unpin(u32 group_idx);

  Ticket begin_storing(u32 group_idx);
  // Published; or, without a record, failed.
  void end_storing(const Ticket& ticket, store::RecordRef record);
  // Begins a load; a frame is free. is_later: no step that runs uses the group.
  Ticket begin_loading(u32 group_idx, bool is_later = false);
  void end_loading(const Ticket& ticket, LoadEnd end);
  // Returns whether the group is still what the ticket was for; if not, the frame is to be given
  // back.
  bool is_current(const Ticket& ticket) const;
  void give_back(const Ticket& ticket);
  void evict(u32 group_idx);  // both -> disk

  static constexpr u32 kNone = EvictionQueue::kNone;

 private:
  void move(u32 group_idx, Where to);
  void enqueue(u32 group_idx);
  Entry& current(const Ticket& ticket, Where where);

  Memory memory_{};
  FreeList free_frames_{};
  EvictionQueue queue_{};
  std::span<Entry> entries_{};  // [n_groups]
  ResidencyStats stats_{};
};

}  // namespace tarn::kv
