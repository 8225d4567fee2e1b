// Moves groups between the frames of memory and the store, so that attention over a context larger
// than memory finds each pin set in memory when it comes to it.
//
//   uses       reads work ahead along a step's order of uses (use_plan.h), over the end of a layer
//              and of the step. What was just used comes next a whole cycle later, so it is evicted
//              first: a part of the cycle stays, where LRU would evict each group just before its
//              use
//   selection  gather() reads the sectors of wanted slots into frames, and frees them afterwards
//   spills     sealed, unpinned groups without a record, in batches, the oldest first, only when
//              frames are short; save() writes a group at any time
//   idle       pages of no session (prefix_index.h) that were not asked for again are dropped
//              first, and are not written. So are the others, where the store refuses to write
//   others     events of the store with tags from kMovesMax on belong to saved sessions: pump()
//              hands them to MoverArgs::on_other
//   waiting    pin(), gather(), make_room(), make_writable(), hold() and settle() wait for the
//              disk. pump(0) between the ops of a step does not, so reads run behind the compute
//   errors     pin() tells who needs a lost group, with the remedy. What may not be written stays
//              in memory; when no frame can be freed, make_room() or pin() says why
//   thread     the engine's
#pragma once

#include <span>

#include "platform/clock/clock.h"
#include "runtime/kv/group_io.h"
#include "runtime/kv/mover_errors.h"
#include "runtime/kv/residency.h"
#include "runtime/kv/sequence.h"
#include "runtime/kv/slot_gather.h"
#include "runtime/kv/use_plan.h"
#include "runtime/step/batch.h"
#include "runtime/store/store.h"

namespace tarn::kv {

inline constexpr u32 kPinSetGroupsMax = 64;

struct MoverMemory {
  std::span<Visit> visits;  // of a step
  std::span<u32> held;      // [n_cache_layers]
  std::span<u32> sectors;   // of a group

  static MoverMemory carve(Carver& carver, const GroupShape& shape, u32 visits_max,
                           u32 n_cache_layers) {
    return {.visits = carver.take<Visit>("visits", visits_max),
            .held = carver.take<u32>("held", n_cache_layers),
            .sectors = carver.take<u32>("sectors", shape.group_bytes() / store::kSectorBytes)};
  }
};

enum class Saved : u8 {
  yes,      // a record of it is published, and pinned
  later,    // under way, or the group is pinned, or there is no place now: pump() and ask again
  refused,  // by the store: why_refused()
  lost,     // its bytes are nowhere
};

class Mover {
 public:
  void init(const MoverArgs& args, const MoverMemory& memory);

  // Returns the step's order of uses. Reads run ahead from its end() on.
  UsePlan& uses() { return uses_; }
  // Waits until n_frames frames are free and one more pin set could be loaded. Before a fork or a
  // truncation, which copy the tail.
  Result<void> make_room(u32 n_frames);
  // Waits for frames for the next n reserved slots of every layer, all or none.
  Result<void> make_writable(const Sequence& sequence, u32 n);

  // Waits for groups [begin, end) of the layer, or the first pin_set_groups of them (fewer where
  // frames are short), and pins them; returns how many. On an error none is pinned. unpin() what
  // was pinned before the next pin().
  Result<u32> pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end);
  void unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end);
  // Copies wanted slots of one layer out of groups in memory and of the disk, and waits for it.
  Result<void> gather(const GatherArgs& args);
  // Pins one group of every layer with no move of it under way, so that Sequence::truncate() may
  // reopen or copy it, until drop_hold(). `group` counts within the sequence.
  Result<void> hold(const Sequence& sequence, u32 group);
  void drop_hold();

  // Begins to read a group that no step uses, if a move and a frame are free. It does not wait.
  void read_spare(u32 group_idx);
  // Begins to write a sealed group that has no record. `group_idx` is the pool's.
  Saved save(u32 group_idx);
  Unexpected why_refused() const { return not_saved(refused_, args_.store->why()); }

  // Takes what the disk has done, begins what is due; waits at most timeout_ns.
  void pump(u64 timeout_ns);
  bool idle() const { return io_.is_idle(); }
  // Waits for the moves under way, and begins none. Afterwards every read that failed is known.
  void settle();
  // Begins nothing new: pump() until idle(), then the store may be closed.
  void stop() { stopped_ = true; }

  const MoverStats& stats() const { return stats_; }

 private:
  bool begin_load(const GroupIo::Load& load);
  bool begin_spill(u32 group_idx);
  void spill();
  bool drop_idle(bool wanted_too);
  void work_ahead();
  void poll(u64 timeout_ns);
  bool go_on();
  Result<bool> wait_for_load(const GroupIo::Load& load);
  Result<void> bring(u32 group_idx, u64 tick);
  u64 pin_present(const Sequence& sequence, u32 cache_layer, u32 begin, u32 n);
  Result<void> gather_group(const GatherArgs& args, u32 group);
  Stuck why_stuck() const;
  u32 n_available() const;

  MoverArgs args_{};
  Residency* residency_ = nullptr;
  UsePlan uses_{};
  GroupIo io_{};
  MoverMemory memory_{};
  u32 n_held_ = 0;
  u32 urgent_room_ = 0;  // while make_room() or pin() waits
  bool spilling_ = false;
  bool stopped_ = false;
  bool crowded_out_ = false;  // the store had no place for the last move that was to begin
  store::Begun refused_ = store::Begun::begun;  // why the last spill did not begin
  u64 refused_until_ns_ = 0;
  MoverStats stats_{};
};

}  // namespace tarn::kv
