// The order in which a step uses groups: layer by layer, in each the step's sequences, in each the
// groups in order. Then the cycle begins anew, since the next step is likely the same.
//
//   ticks    each use has one, ascending over all steps. A use that no plan has is at tick 0
//   queue    end() tells the eviction queue the next use of every group of the plan
//   ahead    the next use that no read has been begun for. It never falls behind the uses that
//            attention has come to
//   later    groups of sequences that no step reads yet, behind two cycles
//   thread   the engine's
#pragma once

#include <span>

#include "runtime/kv/eviction_queue.h"
#include "runtime/kv/sequence.h"

namespace tarn::kv {

// One sequence of a step: attention touches its first n_groups groups of every layer, but for the
// offloaded ones, of which single slots are gathered.
struct Visit {
  const Sequence* sequence = nullptr;
  u32 n_groups = 0;
  u32 offloaded_begin = 0, offloaded_end = 0;
  u32 n_offloaded() const { return offloaded_end - offloaded_begin; }
  u32 n_uses() const { return n_groups - n_offloaded(); }
  u32 group(u32 use) const { return use < offloaded_begin ? use : use + n_offloaded(); }
  bool is_offloaded(u32 group) const { return group >= offloaded_begin && group < offloaded_end; }
};

class UsePlan {
 public:
  // Borrows memory for the visits of a step.
  void init(std::span<Visit> visits, u32 n_cache_layers, EvictionQueue* queue);

  // Begins the uses of a step: begin(), add() for each of its sequences, and end().
  void begin();
  void add(const Visit& visit);
  void end();
  // After end(): what a later step is going to read of another sequence, in the order of turns.
  void add_later(const Visit& visit);

  // Returns the tick of a group's use in the cycle under way; 0: the plan has none.
  u64 tick_of(const Sequence& sequence, u32 cache_layer, u32 group) const {
    return find(sequence, cache_layer, group).tick;
  }
  // Returns the same tick, and notes that attention has come to this group.
  u64 note_use(const Sequence& sequence, u32 cache_layer, u32 group);
  // Returns the tick of the same use in the next cycle.
  u64 next_tick(u64 tick) const { return tick == 0 ? 0 : tick + cycle_groups_; }
  u64 used_tick() const { return used_tick_; }  // of the last pin set of this step

  // Returns whether a use is left to read ahead for, within one cycle of what is used now.
  bool has_ahead() const { return !at_end_ && ahead_.tick < used_tick_ + cycle_groups_; }
  u64 ahead_tick() const { return ahead_.tick; }
  // EvictionQueue::kNone where it has been cut since.
  u32 ahead_group() const { return group_of(visits_[ahead_.visit], ahead_); }
  void advance() { at_end_ = !advance(ahead_); }
  // Returns the same of what later steps read.
  bool has_later() const { return later_at_.visit < later_.size(); }
  u64 later_tick() const { return later_at_.tick; }
  u32 later_group() const { return group_of(later_[later_at_.visit], later_at_); }
  void advance_later();

 private:
  // A place in the order of uses.
  struct Cursor {
    u32 layer = 0, visit = 0, use = 0;
    u64 tick = 0;
  };
  Cursor find(const Sequence& sequence, u32 cache_layer, u32 group) const;
  bool advance(Cursor& cursor) const;  // false at the end of the next cycle
  static u32 group_of(const Visit& visit, const Cursor& cursor);

  u32 n_cache_layers_ = 0;
  EvictionQueue* queue_ = nullptr;
  std::span<Visit> storage_{};
  std::span<Visit> visits_{};  // of the step
  std::span<Visit> later_{};   // of later ones
  u64 cycle_groups_ = 0;       // uses of a whole cycle
  u64 first_tick_ = 1;
  Cursor ahead_{};
  bool at_end_ = true;
  u64 used_tick_ = 0;
  u64 n_later_groups_ = 0;
  Cursor later_at_{};  // visit by visit, in each layer by layer
};

}  // namespace tarn::kv
