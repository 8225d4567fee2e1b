// The KV cache of an engine: groups in memory, in a GPU's memory, or over frames of memory and a
// store on disk (tiers). The caller need not know which. Without tiers every group has its place
// for good: pin() returns the count of all groups, nothing waits or moves, and no read fails.
//
//   prefixes   full pages are found by their tokens, wherever they lie (prefixes.h)
//   failures   of a run whose KV cannot be read: its state says so, and the others go on
//   guest      what else lies in the store, saved sessions, hears of its events and is pumped
//   thread     the engine's
#pragma once

#include <array>
#include <span>

#include "runtime/kv/group_pool.h"
#include "runtime/kv/prefixes.h"
#include "runtime/step/batch.h"

namespace tarn::kv {

struct KvSizes {
  GroupShape shape{};
  u32 groups_max = 0;
  u32 sessions_max = 0;
  u32 n_cache_layers = 0;
  u32 context_tokens = 0;  // of one session at most
  u32 n_frames = 0;        // of memory; 0: each group has its place for good
  u32 n_pages = 0;         // that the groups can make
  bool reuses = false;     // pages are found, and stay when no sequence has them
};

// Tables of the pool, of every session's sequence, and over a disk those of moving groups.
struct KvTables {
  std::span<std::byte> pool;      // GroupPool's
  std::span<GroupRef> sequences;  // [sessions_max, Sequence::n_entries()]
  std::span<std::byte> residency, pages;
  MoverMemory mover;

  static KvTables carve(Carver& carver, const KvSizes& sizes) {
    const u32 page_tokens = sizes.shape.page_tokens;
    const bool has_frames = sizes.n_frames > 0;
    const auto take = [&](const char* name, bool is_there, auto&& init) {
      Carver counting;
      if (is_there) init(counting);
      return carver.take<std::byte>(name, counting.n_bytes());
    };
    return {.pool = take("pool", true,
                         [&](Carver& c) { GroupPool().init(c, sizes.shape, sizes.groups_max); }),
            .sequences = carver.rows<GroupRef>(
                "sequence", sizes.sessions_max,
                Sequence::n_entries(sizes.n_cache_layers, sizes.context_tokens, page_tokens)),
            .residency = take("residency", has_frames,
                              [&](Carver& c) {
                                Residency().init(
                                    c, {.n_groups = sizes.groups_max, .n_frames = sizes.n_frames});
                              }),
            .pages = take("pages", true,
                          [&](Carver& c) {
                            PrefixIndex().init(c, {.n_pages = sizes.n_pages,
                                                   .n_cache_layers = sizes.n_cache_layers,
                                                   .page_tokens = page_tokens});
                          }),
            .mover = has_frames ? MoverMemory::carve(carver, sizes.shape, sizes.sessions_max + 1,
                                                     sizes.n_cache_layers)
                                : MoverMemory{}};
  }
};

struct KvArgs {
  KvSizes sizes{};
  KvTables tables{};
  std::array<u8, 32> entropy{};  // that keys are made from, or by the secret of the store
};

struct TierArgs {
  u32 pin_set_groups = 0;         // that attention takes at a time
  u32 moves_max = 0;              // in each direction
  std::span<std::byte> frames{};  // [n_frames] groups
  ExtentShape extents{};
  std::span<std::byte> extents_memory{};
  TierStoreArgs store{};        // without buffers: open_tiers() names them
  StoreGuest* guest = nullptr;  // must hear of its records' events; nullptr: no event is a guest's
  step::StepHost* host = nullptr;  // MoverArgs::host
};

struct KvStats {
  MoverStats moved{};
  ExtentStats extents{};
  store::StoreStats store{};
};

class KvCache {
 public:
  static constexpr u32 kSessionsMax = 1024;  // step::Run::session is below

  KvCache() = default;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache() { close(); }

  // Lays nothing out: pool().lie_in() says where groups lie, or open_tiers() puts them into frames.
  void init(const KvArgs& args);
  // Opens the store. Where its disk fails but the frames hold all KV, the store stays off and the
  // rest goes on: a box answers though its disk is gone.
  Result<void> open_tiers(const TierArgs& args);
  void close();
  bool has_tiers() const { return moves_->exist(); }
  Tiers& tiers() { return tiers_; }
  const Tiers& tiers() const { return tiers_; }
  GroupPool& pool() { return pool_; }
  const GroupPool& pool() const { return pool_; }
  Prefixes& prefixes() { return prefixes_; }
  const Prefixes& prefixes() const { return prefixes_; }
  KvStats stats() const;

  // Reserves slots until the sequence has n_slots of them. False: the pool has no group left.
  static bool reserve_slots(Sequence& sequence, u32 n_slots);
  // Keeps the first n slots. io_failed: a part of the tail is lost, see cut_lost().
  Result<void> truncate(Sequence& sequence, u32 n);
  // With room for n_more slots behind the copied ones.
  Result<void> fork(const Sequence& source, Sequence& copy, u32 n_more);
  // Waits for reads under way, then cuts the sequence. With keeps_whole_pages the pages before the
  // first lost group stay, else nothing does.
  void cut_lost(Sequence& sequence, bool keeps_whole_pages);

  // Frames for the next n reserved slots of the sequence, all or none. Before plan_step().
  Result<void> reserve_frames(const Sequence& sequence, u32 n) {
    return moves_->make_writable(sequence, n);
  }
  // Plans what attention is going to read: reads work ahead along it, and along all of the sequence
  // that comes next. Of neither, no part of the KV is read ahead.
  void plan_step(const step::Batch& batch, const Sequence* next = nullptr) {
    moves_->plan_step(batch, next);
  }
  // After plan_step(): all of this sequence is read by a later step, in the order of these calls.
  void plan_later(const Sequence& sequence) { moves_->plan_later(sequence); }
  // Returns how many of n runs can have their groups pinned together: all, or one.
  u32 n_together(u32 n_runs) const { return moves_->n_together(n_runs); }
  // Groups [begin, end) of a layer, or fewer; returns how many.
  Result<u32> pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
    return moves_->pin(sequence, cache_layer, begin, end);
  }
  void unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
    moves_->unpin(sequence, cache_layer, begin, end);
  }
  // Notes why KV could not be read, the last time. The caller marks its run as failed.
  void note_failure(const Error& error) { error_ = error; }
  const Error& error() const { return error_; }

  void pump(u64 timeout_ns) { moves_->pump(timeout_ns); }
  bool is_moving() const { return moves_->are_under_way(); }

 private:
  void init_pages(const store::Secret* secret, Tiers* tiers);

  KvSizes sizes_{};
  KvTables tables_{};
  GroupPool pool_{};
  Prefixes prefixes_{};
  store::Secret secret_{};  // without tiers
  Tiers tiers_{};
  NoMoves no_moves_{};
  GroupMoves* moves_ = &no_moves_;
  Error error_{};
};

}  // namespace tarn::kv
