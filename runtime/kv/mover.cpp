#include "runtime/kv/mover.h"

#include <algorithm>
#include <array>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/kv/mover_errors.h"

namespace tarn::kv {
namespace {

constexpr u64 kRetryNs = 100'000'000;  // between spills that the store refused
constexpr u32 kSpillBatch = 16;        // so that the disk sees long runs, and few syncs

}  // namespace

void Mover::init(const MoverArgs& args, const MoverMemory& memory) {
  TARN_ASSERT(args.residency != nullptr && args.store != nullptr && args.clock != nullptr);
  TARN_ASSERT(args.pin_set_groups > 0);
  *this = Mover();
  args_ = args;
  memory_ = memory;
  residency_ = args.residency;
  uses_.init(memory.visits, args.n_cache_layers, &residency_->queue());
  io_.init(args, &stats_);
}

// ---- Moves --------------------------------------------------------------------------------------

// Returns false where no move or no frame is free for the load now.
bool Mover::begin_load(const GroupIo::Load& load) {
  if (!io_.can_load()) return false;
  if (residency_->n_free_frames() == 0) {
    const u32 victim = residency_->queue().victim();
    if (victim == Residency::kNone) return false;
    if (!load.demanded && !residency_->queue().goes_before(victim, load.tick)) return false;
    residency_->evict(victim);
    ++stats_.n_evictions;
  }
  const store::Begun begun = io_.load(load);
  crowded_out_ = begun == store::Begun::busy;
  return begun != store::Begun::busy;
}

// Returns false where the spill has to wait for a free move, or for the store.
bool Mover::begin_spill(u32 group_idx) {
  if (!io_.can_store()) return false;
  const store::Begun begun = io_.store(group_idx);
  crowded_out_ = begun == store::Begun::busy;
  if (begun == store::Begun::busy || begun == store::Begun::known) return false;
  refused_ = begun;
  if (begun == store::Begun::begun) return true;
  refused_until_ns_ = args_.clock->now_ns() + kRetryNs;
  return false;
}

void Mover::read_spare(u32 group_idx) {
  if (residency_->where(group_idx) != Where::disk) return;
  (void)begin_load({.group_idx = group_idx, .tick = EvictionQueue::kNever, .is_later = true});
}

Saved Mover::save(u32 group_idx) {
  const Where where = residency_->where(group_idx);
  TARN_ASSERT(where >= Where::memory);
  if (where == Where::lost) return Saved::lost;
  if (where == Where::storing && args_.store->mode() != store::Mode::off) return Saved::later;
  if (where == Where::storing) {  // no record will come of it, though the disk still has the frame
    refused_ = store::Begun::not_now;
    return Saved::refused;
  }
  if (where != Where::memory) return Saved::yes;
  if (residency_->entry(group_idx).pins > 0) return Saved::later;
  refused_ = store::Begun::begun;
  if (begin_spill(group_idx)) {
    return residency_->where(group_idx) == Where::both ? Saved::yes : Saved::later;
  }
  return refused_ == store::Begun::begun ? Saved::later : Saved::refused;
}

u32 Mover::n_available() const {
  const ResidencyStats& stats = residency_->stats();
  return residency_->n_free_frames() + stats.n_lent_frames + residency_->queue().n_clean() +
         stats.n(Where::storing) + stats.n(Where::loading);
}

void Mover::spill() {
  const u32 target = std::max(2 * args_.pin_set_groups, urgent_room_);
  const bool is_refused = args_.clock->now_ns() < refused_until_ns_;
  while (n_available() < target && drop_idle(is_refused)) {
  }
  if (n_available() < target) spilling_ = true;
  if (urgent_room_ == 0 && is_refused) return;
  while (spilling_) {
    const u32 group_idx = residency_->queue().first_dirty();
    if (group_idx == Residency::kNone || n_available() >= target + kSpillBatch) {
      spilling_ = false;
    } else if (!drop_idle(/*wanted_too=*/false) && !begin_spill(group_idx)) {
      if (refused_ == store::Begun::begun || !drop_idle(/*wanted_too=*/true)) return;
    }
  }
}

// Drops the oldest idle page that has frames.
bool Mover::drop_idle(bool wanted_too) {
  if (!wanted_too && !args_.pages->has_unwanted()) return false;
  const auto may_go = [&](u32 idle) {
    if (!args_.pages->node(idle).is_wanted) return true;
    return wanted_too && std::ranges::any_of(args_.pages->groups(idle), [&](GroupRef group) {
             return residency_->where(group.idx) != Where::disk;
           });
  };
  u32 page = args_.pages->oldest();
  while (page != kNoPage && !may_go(page)) page = args_.pages->node(page).younger;
  if (page == kNoPage) return false;
  args_.pages->drop(page);
  ++stats_.n_dropped_pages;
  return true;
}

// Reads ahead, no further than two pin sets of what is not here: each frame that is filled earlier
// is one less in which a part of the cycle stays.
void Mover::work_ahead() {
  while (uses_.has_ahead() && residency_->stats().n_unused < 2 * args_.pin_set_groups) {
    const u32 group_idx = uses_.ahead_group();
    const bool wanted =
        group_idx != Residency::kNone && residency_->where(group_idx) == Where::disk;
    if (wanted && !begin_load({.group_idx = group_idx, .tick = uses_.ahead_tick()})) return;
    uses_.advance();
  }
  // Half of the moves stay for reads that a step waits for.
  const u32 later_max = args_.loads_max / 2;
  while (!uses_.has_ahead() && uses_.has_later() && io_.n_under_way() < later_max) {
    const u32 group_idx = uses_.later_group();
    const bool wanted =
        group_idx != Residency::kNone && residency_->where(group_idx) == Where::disk;
    const GroupIo::Load load = {
        .group_idx = group_idx, .tick = uses_.later_tick(), .is_later = true};
    if (wanted && !begin_load(load)) return;
    uses_.advance_later();
  }
}

// Takes what the disk has done.
void Mover::poll(u64 timeout_ns) {
  std::array<store::Event, 64> events;
  const u32 n = args_.store->poll(events, timeout_ns);
  for (const store::Event& event : std::span(events).first(n)) {
    event.tag < kMovesMax ? io_.take(event) : args_.on_other(args_.other_context, event);
  }
  io_.end_look();
}

void Mover::pump(u64 timeout_ns) {
  if (timeout_ns > 0 && args_.host != nullptr) (void)args_.host->tick(step::Pause::within_op);
  poll(timeout_ns);
  if (stopped_) return;
  spill();
  if (urgent_room_ == 0) work_ahead();  // or it would take what is made room for
}

void Mover::settle() {
  while (io_.n_under_way() > 0) poll(kWaitNs);
}

// ---- Waiting ------------------------------------------------------------------------------------

// Pumps once. False when asking again would change nothing: no move is under way, nothing keeps the
// place in the store that a move was to have, and no frame came free within pump(): by a spill that
// found its record there, or an idle page that was dropped.
bool Mover::go_on() {
  const auto is_under_way = [this] {
    return io_.n_under_way() > 0 || (crowded_out_ && args_.store->will_go_on());
  };
  const bool waits = is_under_way();
  const u64 n_freed = stats_.n_known + stats_.n_dropped_pages;
  crowded_out_ = false;
  pump(waits ? kWaitNs : 0);
  return waits || is_under_way() || stats_.n_known + stats_.n_dropped_pages > n_freed;
}

Result<void> Mover::make_room(u32 n_frames) {
  urgent_room_ = n_frames + args_.pin_set_groups;
  const u64 start_ns = args_.clock->now_ns();
  bool possible = true, made = false;
  while (possible) {
    const u32 n_free = residency_->n_free_frames();
    const u32 n_evictable = residency_->queue().n_clean();
    made = n_free >= n_frames && n_free + n_evictable >= urgent_room_;
    if (made) break;
    if (n_free < n_frames && n_evictable > 0) {
      residency_->evict(residency_->queue().victim());
      ++stats_.n_evictions;
    } else {
      possible = go_on();
    }
  }
  urgent_room_ = 0;
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
  if (!made) return no_frame(why_stuck());
  return {};
}

Result<void> Mover::make_writable(const Sequence& sequence, u32 n) {
  const u32 page_tokens = residency_->shape().page_tokens;
  const u32 begin = sequence.n_slots() / page_tokens;
  const u32 end = static_cast<u32>(ceil_div(u64{sequence.n_slots()} + n, page_tokens));
  u32 n_needed = 0;
  const auto each_reserved = [&](auto&& on_group) {
    for (u32 layer = 0; layer < sequence.n_cache_layers(); ++layer) {
      for (u32 group = begin; group < end; ++group) {
        const u32 group_idx = sequence.group(layer, group).idx;
        if (residency_->where(group_idx) == Where::reserved) on_group(group_idx);
      }
    }
  };
  each_reserved([&](u32) { ++n_needed; });
  if (n_needed > 0) TARN_CHECK(make_room(n_needed));
  each_reserved([&](u32 group_idx) { (void)residency_->group(group_idx); });
  return {};
}

Stuck Mover::why_stuck() const {
  return {.refused = refused_,
          .is_crowded_out = crowded_out_,
          .n_frames = residency_->n_frames(),
          .n_dirty = residency_->stats().n(Where::memory)};
}

// Waits until the load has begun, and says so, or what it is of is no longer on the disk alone.
Result<bool> Mover::wait_for_load(const GroupIo::Load& load) {
  while (residency_->where(load.group_idx) == Where::disk) {
    if (begin_load(load)) return true;
    // Frames that others hold must be written before they are free.
    urgent_room_ = residency_->queue().victim() == Residency::kNone ? n_available() + 1 : 0;
    const bool possible = go_on();
    urgent_room_ = 0;
    if (possible || residency_->where(load.group_idx) != Where::disk) continue;
    if (!begin_load(load)) return no_frame(why_stuck());
    return true;
  }
  return false;
}

// Waits until the group is in memory, and pins it.
Result<void> Mover::bring(u32 group_idx, u64 tick) {
  for (;;) {
    const Where where = residency_->where(group_idx);
    if (where == Where::lost) return lost();
    if (where == Where::disk) {
      TARN_CHECK(wait_for_load({.group_idx = group_idx, .tick = tick, .demanded = true}));
    } else if (where == Where::loading) {
      go_on();
    } else {
      residency_->pin(group_idx);
      return {};
    }
  }
}

// Pins what is in memory of n <= 64 groups; returns which, bit by bit.
u64 Mover::pin_present(const Sequence& sequence, u32 cache_layer, u32 begin, u32 n) {
  u64 present = 0;
  for (u32 i = 0; i < n; ++i) {
    const u32 group_idx = sequence.group(cache_layer, begin + i).idx;
    const Where where = residency_->where(group_idx);
    if (where == Where::lost || where == Where::disk || where == Where::loading) continue;
    residency_->pin(group_idx);
    present |= u64{1} << i;
  }
  return present;
}

Result<u32> Mover::pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  const u32 n = std::min(end - begin, args_.pin_set_groups);
  TARN_ASSERT(begin < end && n <= kPinSetGroupsMax);
  (void)uses_.note_use(sequence, cache_layer, begin);
  const auto tick = [&](u32 i) { return uses_.tick_of(sequence, cache_layer, begin + i); };

  // All that are there first, so that none of them has to go for another.
  const u64 present = pin_present(sequence, cache_layer, begin, n);
  const u32 n_present = static_cast<u32>(__builtin_popcountll(present));
  stats_.n_hits += n_present;
  stats_.n_waited += n - n_present;
  if (n_present == n) {
    pump(0);
    return n;
  }
  const u64 start_ns = args_.clock->now_ns();
  for (u32 i = 0; i < n; ++i) {  // side by side
    const u32 group_idx = sequence.group(cache_layer, begin + i).idx;
    if (residency_->where(group_idx) != Where::disk) continue;
    if (!begin_load({.group_idx = group_idx, .tick = tick(i), .demanded = true})) break;
  }
  u32 n_pinned = 0;
  Result<void> brought{};
  for (; n_pinned < n; ++n_pinned) {
    if ((present >> n_pinned & 1) != 0) continue;
    brought = bring(sequence.group(cache_layer, begin + n_pinned).idx, tick(n_pinned));
    if (!brought) break;
  }
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
  if (brought) return n;
  const bool is_lost =
      residency_->where(sequence.group(cache_layer, begin + n_pinned).idx) == Where::lost;
  const u32 n_kept = is_lost ? 0 : n_pinned;  // a smaller pin set will do, if there is one
  for (u32 i = n_kept; i < n; ++i) {
    if (i < n_pinned || (present >> i & 1) != 0) {
      residency_->unpin(sequence.group(cache_layer, begin + i).idx);
    }
  }
  if (n_kept == 0) return fail(brought.error());
  return n_kept;
}

void Mover::unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  for (u32 group = begin; group < end; ++group) {
    const u32 group_idx = sequence.group(cache_layer, group).idx;
    const u64 tick = uses_.tick_of(sequence, cache_layer, group);
    residency_->queue().set_next_use(group_idx, uses_.next_tick(tick));
    residency_->unpin(group_idx);
  }
}

// ---- Single slots -------------------------------------------------------------------------------

Result<void> Mover::gather(const GatherArgs& args) {
  const u64 start_ns = args_.clock->now_ns();
  const GroupShape& shape = residency_->shape();
  io_.begin_gather(&args);
  Result<void> gathered{};
  auto group = next_wanted_group(args, shape, 0);
  for (; group && gathered; group = next_wanted_group(args, shape, *group + 1)) {
    gathered = gather_group(args, *group);
  }
  while (io_.is_gathering()) go_on();
  const bool is_whole = io_.end_gather();
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
  if (gathered && !is_whole) gathered = lost();
  return gathered;
}

Result<void> Mover::gather_group(const GatherArgs& args, u32 group) {
  const u32 group_idx = args.sequence->group(args.cache_layer, group).idx;
  const bool is_offloaded = args.is_offloaded(group);
  if (is_offloaded && residency_->where(group_idx) == Where::disk) {
    TARN_TRY(
        const bool has_begun,
        wait_for_load({.group_idx = group_idx,
                       .demanded = true,
                       .sectors = wanted_sectors(args, residency_->shape(), group, memory_.sectors),
                       .group = group}));
    if (has_begun) return {};  // else it is brought for another caller
  }
  const u64 tick = uses_.note_use(*args.sequence, args.cache_layer, group);
  const bool is_here = residency_->where(group_idx) != Where::disk;
  ++(is_here ? stats_.n_hits : stats_.n_waited);
  TARN_CHECK(bring(group_idx, tick));
  const u64 n_bytes = copy_wanted(args, residency_->shape(), group, residency_->group(group_idx));
  if (is_offloaded) stats_.bytes_gathered_here += n_bytes;
  residency_->queue().set_next_use(group_idx, uses_.next_tick(tick));
  residency_->unpin(group_idx);
  return {};
}

Result<void> Mover::hold(const Sequence& sequence, u32 group_idx) {
  TARN_ASSERT(n_held_ == 0);
  for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
    const u32 held = sequence.group(layer, group_idx).idx;
    if (Result<void> brought = bring(held, uses_.used_tick()); !brought) {
      drop_hold();
      return brought;
    }
    memory_.held[n_held_++] = held;
    while (residency_->where(held) == Where::storing) {
      if (go_on()) continue;
      drop_hold();
      return fail({.status = Status::would_block,
                   .hint = "the disk still has a part of the session that this would write to, and "
                           "does not answer: check the disk, or go on at the session's end"});
    }
  }
  return {};
}

void Mover::drop_hold() {
  for (const u32 group_idx : memory_.held.first(n_held_)) residency_->unpin(group_idx);
  n_held_ = 0;
}

}  // namespace tarn::kv
