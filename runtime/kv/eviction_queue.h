// Which group's frame may be had next. A group without pins is in one of two lists:
//
//   dirty   its frame has the only copy: to be written first. The oldest is first
//   clean   a record of it is on disk: it may be evicted. In order of the next use, the soonest
//           first; behind them those that the running cycle of uses does not touch, the longest
//           untouched last. Victims come from the end (Belady 1966)
//
//   cycle   begin_cycle() and expect() name the uses of a step, each at its tick. A group whose
//           next use lies before the cycle's first tick is idle
//   thread  the engine's
//
// Invariant: the clean groups from first_idle_ on are idle, and those in front of it are not.
#pragma once

#include <span>

#include "runtime/arena/carver.h"

namespace tarn::kv {

class EvictionQueue {
 public:
  static constexpr u32 kNone = ~u32{0};
  static constexpr u64 kNever = (u64{1} << 62) - 1;  // the last tick

  void init(Carver& carver, u32 n_groups);

  void push_dirty(u32 group_idx);
  // Next used `soonest` of all, or, if its use of this cycle is over, after all expected ones.
  void push_clean(u32 group_idx, bool soonest);
  void remove(u32 group_idx);  // from the list that it is in, if any

  u32 first_dirty() const { return dirty_.head; }  // kNone: there is none
  u32 victim() const { return clean_.tail; }       // likewise
  u32 n_clean() const { return clean_.n; }
  u32 n_dirty() const { return dirty_.n; }

  void begin_cycle(u64 first_tick);
  // From the last use to the first.
  void expect(u32 group_idx, u64 tick);
  // Behind all of those, from the first use to the last; a use that is expected already stays.
  void expect_later(u32 group_idx, u64 tick);
  void set_next_use(u32 group_idx, u64 tick);  // of a group in neither list
  // Returns whether the group is evicted before one that is used next at `tick`.
  bool goes_before(u32 group_idx, u64 tick) const;
  void check_invariants() const;

 private:
  enum class In : u8 { neither, dirty, clean };
  struct Node {
    u64 next_use : 62 = 0;
    u64 in : 2 = 0;
    u32 before = kNone, after = kNone;
  };
  struct List {
    u32 head = kNone, tail = kNone, n = 0;
  };
  List& list_of(In in) { return in == In::dirty ? dirty_ : clean_; }
  In in(u32 group_idx) const { return static_cast<In>(nodes_[group_idx].in); }
  void set_expected(u32 group_idx, u64 tick, bool soonest);
  void link(u32 group_idx, In in, u32 after);  // behind `after`; kNone: first

  std::span<Node> nodes_{};  // [n_groups]
  List dirty_{}, clean_{};
  u32 first_idle_ = kNone;
  u64 cycle_begin_ = 1;
};

}  // namespace tarn::kv
