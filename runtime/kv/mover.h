// runtime/kv/mover.h
//
// Moves groups between the frames of memory and the store, so that attention over a context larger
// than memory finds each window of groups in place when it comes to it.
//
//   uses       full attention touches every group of a step in an order that is known: layer by
//              layer, in each the step's sequences, in each the groups in order; then it begins
//              anew. A plan of the step says it. Reads work ahead along that order, over the end of
//              a layer and of the step; what was just used comes next a whole cycle later, so it
//              goes first (Belady 1966), and before it whatever the step does not touch, the
//              longest untouched first. A resident part of the cycle so stays resident, where LRU
//              would evict each group just before its use.
//   selection  a sequence may read single slots of a range of its groups, gather(): of these the
//              sectors that are wanted come, through frames that are free again at once, and the
//              plan leaves them out
//   spills     what is sealed, unpinned and on no disk, the oldest first, in batches, and only when
//              frames are short: a context that fits is never written
//   names      a group with a name (page_names.h) lies in the store under the key of its tokens:
//              what is there already is not written again. One without lies under a key of its own,
//              which is of no use to a later opening
//   saving     save() writes a group although frames are not short, so that a session outlives us
//   others     operations of the store with tags from kMovesMax on are somebody else's: pump()
//              hands their events on
//   room       before a step, make_writable() gives frames to what it appends
//   waiting    pin(), make_room() and hold() wait for the disk; pump() between the ops of a step
//              goes on without waiting, so that reads run behind the compute
//   bounds     loads_max and spills_max moves under way, kMovesMax in all
//   errors     a record that cannot be read back or does not verify makes its group lost: pin()
//              says so to whoever needs it, with the remedy, and nobody else notices. A group that
//              may not be written (store full, write budget used up, disk failed) stays in memory;
//              when no frame can be freed any more, make_room() or pin() says which it was
//   thread     the engine's
#pragma once

#include <array>
#include <span>

#include "platform/clock/clock.h"
#include "runtime/kv/residency.h"
#include "runtime/kv/sequence.h"
#include "runtime/store/store.h"

namespace tarn::kv {

inline constexpr u32 kMovesMax = 128;
inline constexpr u32 kWindowGroupsMax = 64;

// One sequence of a step: attention touches its first n_groups groups of every layer, but for the
// far ones, of which single slots are gathered.
struct Visit {
  const Sequence* sequence = nullptr;
  u32 n_groups = 0;
  u32 offloaded_begin = 0, offloaded_end = 0;
  u32 n_offloaded() const { return offloaded_end - offloaded_begin; }
  u32 n_uses() const { return n_groups - n_offloaded(); }
  u32 group(u32 use) const { return use < offloaded_begin ? use : use + n_offloaded(); }
  bool is_offloaded(u32 group) const { return group >= offloaded_begin && group < offloaded_end; }
};

// A slot that one KV head wants, and its place in what it gets.
struct WantedSlot {
  u32 slot = 0;
  u32 place = 0;
};
struct GatherArgs {
  const Sequence* sequence = nullptr;
  u32 cache_layer = 0;
  // Sectors of these are read; others are brought whole, and stay as the plan says.
  u32 offloaded_begin = 0, offloaded_end = 0;
  std::span<const std::span<const WantedSlot>> wanted{};  // of each KV head, slots ascending
  std::span<u8* const> out{};  // of each KV head: K and V of `place` at place * slot bytes
};

struct MoverArgs {
  Residency* residency = nullptr;
  store::Store* store = nullptr;
  Clock* clock = nullptr;
  u32 n_cache_layers = 0;
  u32 window_groups = 1;  // pinned at a time, at most
  u32 loads_max = 32;
  u32 spills_max = 32;
  u64 nonce = 0;  // of this opening of the store: keys of groups without a name never repeat
  const PageNames* names = nullptr;
  void (*on_other)(void* context, const store::Event& event) = nullptr;
  void* other_context = nullptr;
  // Before each look at the disk that may wait; nullptr: nobody wants to know.
  void (*on_wait)(void* context) = nullptr;
  void* wait_context = nullptr;
};

struct MoverStats {
  u64 n_hits = 0;    // groups that were in memory when attention came to them
  u64 n_waited = 0;  // and those that it had to wait for
  u64 wait_ns = 0;
  u64 n_loads = 0, n_spills = 0, n_lost = 0, n_spill_failures = 0, n_evictions = 0;
  u64 n_known = 0;  // spills that found their record there
  u64 bytes_loaded = 0, bytes_spilled = 0;
  // Of gather(), in part of the figures above too.
  u64 n_gather_reads = 0;       // groups of which sectors were read
  u64 bytes_gathered = 0;       // sectors that were wanted
  u64 bytes_gathered_used = 0;  // of them, K and V of wanted slots
  u64 bytes_gathered_here = 0;  // K and V of wanted slots of far groups that were in memory
};

enum class Saved : u8 {
  yes,      // a record of it is published, and pinned
  later,    // it is on its way, or there is no place for it now: pump() and ask again
  refused,  // by the store: why_refused()
  lost,     // its bytes are nowhere
};

class Mover {
 public:
  static u64 bookkeeping_bytes(const GroupShape& shape, u32 visits_max, u32 n_cache_layers);
  void init(const MoverArgs& args, u32 visits_max, std::span<std::byte> bookkeeping);

  // The uses of the step that begins: begin_plan(), add_visit() for each of its sequences, and
  // end_plan(); from then on reads work ahead along them.
  void begin_plan();
  void add_visit(const Visit& visit);
  void end_plan();
  // Frames that the steps to come will take: spills keep as many free or evictable.
  void set_room(u32 n_frames) { room_ = n_frames; }
  // Waits until n_frames frames are free, and a window can still pass through the others: before
  // forks and truncations, which copy tails.
  Result<void> make_room(u32 n_frames);
  // Waits for frames for the next n reserved slots of every layer, all or none.
  Result<void> make_writable(const Sequence& sequence, u32 n);

  // Waits for groups [begin, end) of the layer, or the first window_groups of them (fewer where
  // frames are short), and pins them; returns how many. On an error none is pinned. unpin() what
  // was pinned before the next pin().
  Result<u32> pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end);
  void unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end);
  // Copies wanted slots of one layer out of groups in memory and of the disk, and waits for it.
  Result<void> gather(const GatherArgs& args);
  // Pins one group of every layer with no move of it under way, so that Sequence::truncate() may
  // reopen or copy it, until drop_hold().
  Result<void> hold(const Sequence& sequence, u32 group_idx);
  void drop_hold();

  // Of a sealed group; begins to write it where it has no record.
  Saved save(u32 group_idx);
  Unexpected why_refused() const;

  // Takes what the disk has done, begins what is due; waits at most timeout_ns.
  void pump(u64 timeout_ns);
  bool idle() const { return n_loading_ + n_storing_ + n_lent_ == 0; }
  // Waits for the moves under way, and begins none: what they lose is known then.
  void settle();
  // Nothing new is begun: pump() until idle(), then the store may be closed.
  void stop() { stopped_ = true; }

  const MoverStats& stats() const { return stats_; }

 private:
  enum class MoveKind : u8 { none, store, load, part };
  struct Move {
    MoveKind kind = MoveKind::none;
    bool lent = false;  // ended, but the disk still has the frame
    bool ok = false;    // how it ended
    store::RecordRef record{};
    Ticket ticket{};
    u32 group = 0;  // of a part: in the sequence's order
  };
  // A place in the order of uses.
  struct Cursor {
    u32 layer = 0, visit = 0, use = 0;
    u64 tick = 0;
  };
  struct Load {
    u32 group_idx = 0;
    u64 tick = 0;
    bool demanded = false;
    std::span<const u32> sectors{};  // of a part; else all
    u32 group = 0;                   // of a part: in the sequence's order
  };

  Move* free_move();
  u64 tag_of(const Move& move) const { return static_cast<u64>(&move - moves_.data()); }
  u64 position(u32 layer, u32 visit, u32 use) const;
  u64 tick_of(const Sequence& sequence, u32 cache_layer, u32 group, Cursor* at = nullptr) const;
  u64 note_use(const Sequence& sequence, u32 cache_layer, u32 group);
  bool advance(Cursor& cursor) const;  // false at the end of the next cycle

  void take(const store::Event& event);
  void end_store(Move& move);
  void end_load(Move& move);
  bool begin_load(const Load& load);
  Result<bool> wait_for_load(const Load& load);
  void work_ahead();
  void spill();
  bool begin_spill(u32 group_idx);
  store::PutArgs::If what_if_known(const store::Key& key, u64 n_bytes) const;
  bool take_known(const Ticket& ticket, const store::Key& key);
  Result<void> bring(u32 group_idx, u64 tick);
  bool go_on();
  store::Begun noted(store::Begun begun);
  Result<void> gather_groups();
  Result<void> gather_group(u32 group);
  std::span<const WantedSlot> wanted_of(u32 kv_head, u32 group) const;
  std::span<const u32> wanted_sectors(u32 group);
  u64 copy_wanted(u32 group, const u8* bytes);
  u64 pin_present(const Sequence& sequence, u32 cache_layer, u32 begin, u32 n);
  Unexpected stuck() const;
  store::Key key_of(u32 group_idx) const;
  std::span<const u32> token_ids_of(u32 group_idx) const;
  u32 n_available() const;

  MoverArgs args_{};
  Residency* residency_ = nullptr;
  std::span<Visit> visits_storage_{};
  std::span<u32> held_{};  // [n_cache_layers]
  u32 n_held_ = 0;
  std::span<u32> sectors_{};            // [of a group]
  const GatherArgs* gather_ = nullptr;  // while one runs
  bool gather_lost_ = false;

  std::span<Visit> visits_{};
  u64 cycle_groups_ = 0;  // uses of a whole cycle
  u64 first_tick_ = 1;
  Cursor ahead_{};  // the next use that nobody has looked at
  bool at_end_ = true;
  u64 used_tick_ = 0;  // of the last window of this step

  std::array<Move, kMovesMax> moves_{};
  u32 n_loading_ = 0, n_storing_ = 0, n_lent_ = 0;
  u32 room_ = 0;
  u32 urgent_room_ = 0;  // while make_room() or pin() waits
  bool spilling_ = false;
  bool stopped_ = false;
  bool crowded_out_ = false;  // the store had no place for the last move that was to begin
  store::Begun refused_ = store::Begun::begun;  // why the last spill did not begin
  u64 refused_until_ns_ = 0;
  MoverStats stats_{};
};

}  // namespace tarn::kv
