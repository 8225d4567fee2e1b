// runtime/kv/residency.h
//
// Where each group's bytes are: in one of the frames of memory, in a record of the store, or both.
// Groups are many (the context), frames few (the memory budget). The states and their edges live
// here; who moves what, and when, is the mover's (mover.h).
//
//   free      nobody's
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
//   A group that is released while the store has its frame leaves the frame `returning`: it is free
//   once the store has given it back, and no sooner. Each move carries a ticket with the group's
//   generation, which is asserted, or found stale, at its end.
//
// Names     of a sealed group, where it has one: the page's (page_names.h) and its layer; the group
//           holds it until its bytes change or it is released
// Pins      bytes are read through a pin alone; what is pinned is neither evicted nor begun to be
//           stored. Tails are writable and always in memory: pins of theirs count, and need nothing
// Order     groups in `both` without pins, the next use soonest first, then those that the running
//           cycle of uses does not touch, the longest untouched last: victims come from the end
// Thread    engine thread; group() of a group in memory from any, while no edge is taken
// When full take_frame() has nothing: the mover makes room first
//
// Invariant: frames free + frames of groups in writing, memory, storing, both, loading + frames
//            returning = n_frames
#pragma once

#include <array>
#include <span>

#include "runtime/kv/group_pool.h"
#include "runtime/kv/page_names.h"
#include "runtime/store/store.h"

namespace tarn::kv {

enum class Where : u8 { free, reserved, writing, memory, storing, both, disk, loading, lost };
inline constexpr u32 kWheres = 9;
const char* where_name(Where where);

// A frame on its way to or from the store, and the group that it was for when that began.
struct Ticket {
  u32 group_idx = ~u32{0};
  u32 generation = 0;
  u32 frame = ~u32{0};
};

class Residency final : public GroupMemory {
 public:
  static u64 region_bytes(const GroupShape& shape, u32 n_frames);
  static u64 bookkeeping_bytes(u32 n_groups, u32 n_frames);
  // Borrows all; the region begins at a multiple of 4 KiB.
  void init(const GroupShape& shape, u32 n_groups, u32 n_frames, std::span<std::byte> region,
            std::span<std::byte> bookkeeping, store::Store* store, PageNames* names = nullptr);

  // GroupMemory. A reserved group gets a free frame at its first use.
  u8* group(u32 group_idx) override;
  void copy(u8* to, const u8* from, u64 bytes) override;
  void on_acquire(u32 group_idx) override;
  void on_seal(u32 group_idx) override;
  void on_reopen(u32 group_idx) override;
  void on_release(u32 group_idx) override;

  Where where(u32 group_idx) const { return entries_[group_idx].where; }
  u32 generation(u32 group_idx) const { return entries_[group_idx].generation; }
  const GroupShape& shape() const { return shape_; }
  u32 n_frames() const { return n_frames_; }
  u32 n_frames_free() const { return n_frames_free_; }
  u32 n(Where where) const { return counts_[static_cast<u32>(where)]; }
  u32 n_returning() const { return n_returning_; }
  u32 n_unused() const { return n_unused_; }  // loaded, or being loaded, and not pinned since

  void take_frame(u32 group_idx);  // reserved -> writing; a frame is free
  // reserved -> disk, before it is sealed: the record holds the bytes of a full group, and is
  // pinned from now on.
  void adopt(u32 group_idx, store::RecordRef record);
  void pin(u32 group_idx);  // its bytes are in memory: memory, storing, both or writing
  void unpin(u32 group_idx);

  // Of a sealed group without a name.
  void set_name(u32 group_idx, u32 name, u32 cache_layer);
  u32 name(u32 group_idx) const { return entries_[group_idx].name; }
  u32 named_layer(u32 group_idx) const { return entries_[group_idx].named_layer; }
  bool is_pinned(u32 group_idx) const { return entries_[group_idx].pins > 0; }

  // The oldest group without a copy on disk and without pins; kNone if there is none.
  u32 first_unsaved() const { return unsaved_.head; }
  Ticket begin_storing(u32 group_idx);
  void end_storing(const Ticket& ticket, store::RecordRef record);  // published, and pinned there
  void fail_storing(const Ticket& ticket);
  Ticket begin_loading(u32 group_idx);         // a frame is free
  void abandon_loading(const Ticket& ticket);  // it did not begin: as if never asked
  void end_loading(const Ticket& ticket);
  // The frame is still the disk's until give_back().
  void fail_loading(const Ticket& ticket);
  // Whether the group is still what the ticket was for; if not, the frame is to be given back.
  bool is_current(const Ticket& ticket) const;
  void give_back(const Ticket& ticket);
  std::span<std::byte> bytes(const Ticket& ticket);
  store::RecordRef record(u32 group_idx) const { return entries_[group_idx].record; }

  // The group whose next use is farthest away; kNone where none may go.
  u32 victim() const { return saved_.tail; }
  u32 n_evictable() const { return n_saved_; }
  // Whether it goes before one that is used next at `tick`.
  bool goes_before(u32 group_idx, u64 tick) const;
  void evict(u32 group_idx);  // both -> disk
  // A cycle of uses begins: expect() names them from the last to the first, each at its tick.
  void begin_cycle(u64 first_tick);
  void expect(u32 group_idx, u64 tick);
  // Used now; next at `next_tick`. Of a pinned group.
  void used(u32 group_idx, u64 next_tick);

  u64 edges(Where from, Where to) const {
    return edges_[static_cast<u32>(from)][static_cast<u32>(to)];
  }
  void check_invariants() const;

  static constexpr u32 kNone = ~u32{0};

 private:
  struct Entry {
    store::RecordRef record{};
    u64 next_use = 0;
    u32 frame = kNone;
    u32 generation = 0;
    u32 pins = 0;
    u32 before = kNone, after = kNone;  // in the list that it is in
    u32 name = kNoName;
    u16 named_layer = 0;
    Where where = Where::free;
    bool is_unused = false;  // since it was loaded
  };
  struct List {
    u32 head = kNone, tail = kNone;
  };

  void move(Entry& entry, Where to);
  void link(List& list, u32 group_idx, u32 after);  // behind `after`; kNone: first
  void unlink(List& list, u32 group_idx);
  void link_saved(u32 group_idx, bool soonest);
  void unlink_saved(u32 group_idx);
  void let_record_go(Entry& entry);
  void let_name_go(Entry& entry);
  void mark_unused(Entry& entry, bool is_unused);
  u32 pop_frame();
  void push_frame(u32 frame);
  Entry& current(const Ticket& ticket, Where where);

  GroupShape shape_{};
  u8* region_ = nullptr;
  store::Store* store_ = nullptr;
  PageNames* names_ = nullptr;
  std::span<Entry> entries_{};  // [n_groups]
  std::span<u32> next_free_{};  // [n_frames], singly linked
  u32 n_frames_ = 0, n_frames_free_ = 0, free_head_ = kNone, n_returning_ = 0;
  u32 n_unused_ = 0;
  List unsaved_{};  // memory without pins, oldest first
  u32 n_saved_ = 0;
  List saved_{};            // both without pins, in order of next use
  u32 first_idle_ = kNone;  // from here on saved_ has what the cycle does not touch
  u64 cycle_begin_ = 1;
  std::array<u32, kWheres> counts_{};
  std::array<std::array<u64, kWheres>, kWheres> edges_{};
};

}  // namespace tarn::kv
