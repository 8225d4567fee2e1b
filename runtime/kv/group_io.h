// Reads and writes of groups that the store has under way: at most kMovesMax, each with its ticket
// (residency.h). When and why a group moves is the mover's.
//
//   keys     a group of a page (prefix_index.h) lies under the page's key and its layer: what is
//            there already is not written again. Others lie under keys that are never looked up
//   parts    a read of single sectors, for a gather, through a frame that is free again at once
//   errors   a record that cannot be read back or does not verify makes its group lost
//   thread   the engine's
#pragma once

#include <array>
#include <span>

#include "platform/clock/clock.h"
#include "runtime/kv/prefix_index.h"
#include "runtime/kv/read_watch.h"
#include "runtime/kv/residency.h"
#include "runtime/kv/slot_gather.h"
#include "runtime/step/batch.h"
#include "runtime/store/store.h"

namespace tarn::kv {

inline constexpr u32 kMovesMax = 128;
inline constexpr u32 kLoadRequests = 2;     // of a group: its record's head, and the payload
inline constexpr u64 kWaitNs = 10'000'000;  // of one look at the disk

struct MoverStats {
  u64 n_hits = 0;    // groups that were in memory when attention came to them
  u64 n_waited = 0;  // and those that it had to wait for
  u64 wait_ns = 0;
  u64 n_loads = 0, n_spills = 0, n_lost = 0, n_spill_failures = 0, n_evictions = 0;
  u64 n_known = 0;          // spills that found their record there
  u64 n_dropped_pages = 0;  // idle ones
  u64 bytes_loaded = 0, bytes_spilled = 0;
  // Counts of gather(), some of which are in the figures above, too.
  u64 n_gather_reads = 0;       // groups of which sectors were read
  u64 bytes_gathered = 0;       // sectors that were wanted
  u64 bytes_gathered_used = 0;  // of them, K and V of wanted slots
  u64 bytes_gathered_here = 0;  // K and V of wanted slots of offloaded groups that were in memory
  ReadTimes reads{};
};

struct MoverArgs {
  Residency* residency = nullptr;
  store::Store* store = nullptr;
  Clock* clock = nullptr;
  u32 n_cache_layers = 0;
  u32 pin_set_groups = 1;  // pinned at a time, at most
  u32 loads_max = 32;
  u32 spills_max = 32;
  u64 nonce = 0;  // of this opening of the store: keys of groups without a page never repeat
  PrefixIndex* pages = nullptr;
  void (*on_other)(void* context, const store::Event& event) = nullptr;
  void* other_context = nullptr;
  step::StepHost* host = nullptr;  // ticks before each look at the disk that may wait
};

class GroupIo {
 public:
  void init(const MoverArgs& args, MoverStats* stats);

  struct Load {
    u32 group_idx = 0;
    u64 tick = 0;                    // of its use
    bool demanded = false;           // and not read ahead for it
    bool is_later = false;           // of no step that runs
    std::span<const u32> sectors{};  // of a part; else all
    u32 group = 0;                   // of a part: in the sequence's order
  };
  // Parts that are read until end_gather(), which tells whether all of them came.
  void begin_gather(const GatherArgs* args);
  bool end_gather();

  bool can_load() { return n_loading_ < args_.loads_max && free_move() != nullptr; }
  // Begins to read a group from the disk; a frame is free. Any answer but begun and busy: the group
  // is lost.
  store::Begun load(const Load& load);
  bool can_store() { return n_storing_ < args_.spills_max && free_move() != nullptr; }
  // Begins to write a dirty group. begun: it is on its way, or its record was there. known: a
  // record of these tokens is being written for another group.
  store::Begun store(u32 group_idx);
  void take(const store::Event& event);
  // Ends a look at the disk: all events of it are taken.
  void end_look();

  u32 n_under_way() const { return n_loading_ + n_storing_; }
  bool is_idle() const { return n_under_way() + n_lent_ == 0; }
  bool is_gathering() const;  // parts are under way

 private:
  enum class MoveKind : u8 { none, store, load, part };
  struct Move {
    MoveKind kind = MoveKind::none;
    bool lent = false;  // ended, but the disk still has the frame
    bool ok = false;    // how it ended
    bool is_foreign = false;
    store::RecordRef record{};
    Ticket ticket{};
    u32 group = 0;  // of a part: in the sequence's order
    u64 n_bytes = 0;
    u64 n_requests = 0;  // of the disk
  };
  Move* free_move();
  u64 tag_of(const Move& move) const { return static_cast<u64>(&move - moves_.data()); }
  store::Key key_of(u32 group_idx) const;
  std::span<const u32> token_ids_of(u32 group_idx) const;
  store::PutArgs::If what_if_known(const store::Key& key, u64 n_bytes) const;
  bool take_known(const Ticket& ticket, const store::Key& key);
  void end_store(Move& move);
  void end_load(Move& move);

  MoverArgs args_{};
  MoverStats* stats_ = nullptr;
  const GatherArgs* gather_ = nullptr;  // while one runs
  bool gather_is_lost_ = false;
  std::array<Move, kMovesMax> moves_{};
  u32 n_loading_ = 0, n_storing_ = 0, n_lent_ = 0;
  ReadWatch watch_{};
  u64 n_read_ = 0, bytes_read_ = 0;  // since the last look
};

}  // namespace tarn::kv
