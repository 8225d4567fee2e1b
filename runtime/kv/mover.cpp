#include "runtime/kv/mover.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

constexpr u64 kWaitNs = 10'000'000;    // of one look at the disk
constexpr u64 kRetryNs = 100'000'000;  // between spills that the store refused
constexpr u32 kSpillBatch = 16;        // so that the disk sees long runs, and few syncs

constexpr Error kLost{
    .status = Status::io_failed,
    .hint =
        "a part of this session's KV could not be read back from the store: generate again, "
        "its tokens are kept and the KV is computed anew"};

}  // namespace

u64 Mover::bookkeeping_bytes(u32 visits_max, u32 n_cache_layers) {
  return u64{visits_max} * sizeof(Visit) + align_up(u64{n_cache_layers} * sizeof(u32), sizeof(u64));
}

void Mover::init(const MoverArgs& args, u32 visits_max, std::span<std::byte> bookkeeping) {
  TARN_ASSERT(args.residency != nullptr && args.store != nullptr && args.clock != nullptr);
  TARN_ASSERT(args.window_groups > 0);
  TARN_ASSERT(args.loads_max > 0 && args.spills_max > 0);
  TARN_ASSERT(args.loads_max + args.spills_max <= kMovesMax);
  *this = Mover();
  args_ = args;
  residency_ = args.residency;
  Bump bump(bookkeeping);
  const auto visits = bump.alloc<Visit>(visits_max);
  const auto held = bump.alloc<u32>(args.n_cache_layers);
  TARN_ASSERT(visits && held);
  visits_storage_ = *visits;
  held_ = *held;
}

// ---- The order of uses --------------------------------------------------------------------------

u64 Mover::position(u32 layer, u32 visit, u32 group) const {
  u64 before = u64{layer} * (cycle_groups_ / args_.n_cache_layers);
  for (const Visit& v : visits_.first(visit)) before += v.n_groups;
  return before + group;
}

// Ticks of the cycle after the last one, which reads have worked ahead into, are behind these.
void Mover::begin_plan() {
  first_tick_ += 2 * cycle_groups_;
  visits_ = visits_storage_.first(0);
}

void Mover::add_visit(const Visit& visit) {
  TARN_ASSERT(visits_.size() < visits_storage_.size());
  TARN_ASSERT(visit.n_groups <= visit.sequence->n_groups());
  visits_storage_[visits_.size()] = visit;
  visits_ = visits_storage_.first(visits_.size() + 1);
}

void Mover::end_plan() {
  u64 layer_groups = 0;
  for (const Visit& visit : visits_) layer_groups += visit.n_groups;
  cycle_groups_ = layer_groups * args_.n_cache_layers;
  used_tick_ = first_tick_;
  ahead_ = {.tick = first_tick_};
  at_end_ = cycle_groups_ == 0;
  residency_->begin_cycle(first_tick_);
  u64 tick = first_tick_ + cycle_groups_;
  for (u32 layer = args_.n_cache_layers; layer-- > 0;) {
    for (u64 i = visits_.size(); i-- > 0;) {
      for (u32 group = visits_[i].n_groups; group-- > 0;) {
        residency_->expect(visits_[i].sequence->group(layer, group).idx, --tick);
      }
    }
  }
  TARN_ASSERT(tick == first_tick_);
  if (!at_end_ && visits_[0].n_groups == 0) at_end_ = !advance(ahead_);
}

bool Mover::advance(Cursor& cursor) const {
  if (cursor.group < visits_[cursor.visit].n_groups) {
    ++cursor.group;
    ++cursor.tick;
  }
  while (cursor.group >= visits_[cursor.visit].n_groups) {
    cursor.group = 0;
    if (++cursor.visit < visits_.size()) continue;
    cursor.visit = 0;
    if (++cursor.layer == args_.n_cache_layers) cursor.layer = 0;
  }
  return cursor.tick < first_tick_ + 2 * cycle_groups_;
}

// ---- Moves --------------------------------------------------------------------------------------

Mover::Move* Mover::free_move() {
  for (Move& move : moves_) {
    if (move.kind == MoveKind::none) return &move;
  }
  return nullptr;
}

// Two openings of a store, two groups and two contents of one group never have the same key.
store::Key Mover::key_of(u32 group_idx) const {
  const std::array<u64, 3> words = {args_.nonce, group_idx, residency_->generation(group_idx)};
  return store::root_key(args_.store->secret(), std::as_bytes(std::span(words)));
}

// False where there is no place or no frame for it now.
bool Mover::begin_load(u32 group_idx, u64 tick, bool demanded) {
  Move* move = free_move();
  if (move == nullptr || n_loading_ >= args_.loads_max) return false;
  if (residency_->n_frames_free() == 0) {
    const u32 victim = residency_->victim();
    if (victim == Residency::kNone) return false;
    if (!demanded && !residency_->goes_before(victim, tick)) return false;
    residency_->evict(victim);
    ++stats_.n_evictions;
  }
  const store::RecordRef record = residency_->record(group_idx);
  const Ticket ticket = residency_->begin_loading(group_idx);
  const std::span<std::byte> bytes = residency_->bytes(ticket);
  const store::Begun begun =
      args_.store->read({.ref = record, .payload = bytes, .tag = tag_of(*move)});
  if (begun == store::Begun::busy) {
    residency_->abandon_loading(ticket);
    return false;
  }
  if (begun != store::Begun::begun) {  // gone, or the store is off: it will not come back
    residency_->fail_loading(ticket);
    residency_->give_back(ticket);
    ++stats_.n_lost;
    return true;
  }
  *move = {.kind = MoveKind::load, .ticket = ticket};
  ++n_loading_;
  ++stats_.n_loads;
  stats_.bytes_loaded += bytes.size();
  return true;
}

bool Mover::begin_spill(u32 group_idx) {
  Move* move = free_move();
  if (move == nullptr || n_storing_ >= args_.spills_max) return false;
  const store::Key key = key_of(group_idx);
  const Ticket ticket = residency_->begin_storing(group_idx);
  const std::span<std::byte> bytes = residency_->bytes(ticket);
  const store::Begun begun = args_.store->put({.kind = store::Kind::group,
                                               .key = key,
                                               .payload = bytes,
                                               .payload_bytes = bytes.size(),
                                               .tag = tag_of(*move)});
  if (begun != store::Begun::begun) {
    TARN_ASSERT(begun != store::Begun::known);  // keys do not repeat
    residency_->fail_storing(ticket);
    if (begun != store::Begun::busy) {
      refused_ = begun;
      refused_until_ns_ = args_.clock->now_ns() + kRetryNs;
    }
    return false;
  }
  refused_ = store::Begun::begun;
  *move = {.kind = MoveKind::store, .ticket = ticket};
  ++n_storing_;
  ++stats_.n_spills;
  stats_.bytes_spilled += bytes.size();
  return true;
}

void Mover::take(const store::Event& event) {
  TARN_ASSERT(event.tag < moves_.size());
  Move& move = moves_[event.tag];
  TARN_ASSERT(move.kind != MoveKind::none);
  const bool is_load = move.kind == MoveKind::load;
  if (event.outcome == store::Outcome::returned) {
    TARN_ASSERT(move.lent);
    --n_lent_;
    move.lent = false;
  } else {
    --(is_load ? n_loading_ : n_storing_);
    move.lent = event.lent;
    move.ok = event.outcome == store::Outcome::ok;
    move.record = event.ref;
    if (move.lent) ++n_lent_;
  }
  is_load ? end_load(move) : end_store(move);
}

// What was to be stored stays as it is until the disk has given the frame back.
void Mover::end_store(Move& move) {
  if (move.lent) return;
  if (!residency_->is_current(move.ticket)) {
    residency_->give_back(move.ticket);  // the record is nobody's: the store's LRU has it
  } else if (move.ok) {
    residency_->end_storing(move.ticket, move.record);
  } else {
    residency_->fail_storing(move.ticket);
    ++stats_.n_spill_failures;
  }
  move = {};
}

void Mover::end_load(Move& move) {
  if (residency_->is_current(move.ticket)) {
    if (move.ok) {
      TARN_ASSERT(!move.lent);
      residency_->end_loading(move.ticket);
      move = {};
      return;
    }
    residency_->fail_loading(move.ticket);
    ++stats_.n_lost;
  }
  if (move.lent) return;
  residency_->give_back(move.ticket);
  move = {};
}

u32 Mover::n_available() const {
  return residency_->n_frames_free() + residency_->n_evictable() + residency_->n(Where::storing) +
         residency_->n(Where::loading) + residency_->n_returning();
}

void Mover::spill() {
  const u32 target = std::max(room_ + 2 * args_.window_groups, urgent_room_);
  if (n_available() < target) spilling_ = true;
  if (urgent_room_ == 0 && args_.clock->now_ns() < refused_until_ns_) return;
  while (spilling_) {
    const u32 group_idx = residency_->first_unsaved();
    if (group_idx == Residency::kNone || n_available() >= target + kSpillBatch) {
      spilling_ = false;
    } else if (!begin_spill(group_idx)) {
      return;
    }
  }
}

// No further than two windows of what is not here: each frame that is filled earlier is one less in
// which a part of the cycle stays.
void Mover::work_ahead() {
  while (!at_end_ && ahead_.tick < used_tick_ + cycle_groups_ &&
         residency_->n_unused() < 2 * args_.window_groups) {
    const Visit& visit = visits_[ahead_.visit];
    if (ahead_.group < visit.sequence->n_groups()) {  // it may have been cut since
      const u32 group_idx = visit.sequence->group(ahead_.layer, ahead_.group).idx;
      const bool wanted = residency_->where(group_idx) == Where::disk;
      if (wanted && !begin_load(group_idx, ahead_.tick, /*demanded=*/false)) return;
    }
    at_end_ = !advance(ahead_);
  }
}

void Mover::pump(u64 timeout_ns) {
  std::array<store::Event, 64> events;
  const u32 n = args_.store->poll(events, timeout_ns);
  for (const store::Event& event : std::span(events).first(n)) take(event);
  if (stopped_) return;
  spill();
  if (urgent_room_ == 0) work_ahead();  // or it would take what is made room for
}

// ---- Waiting ------------------------------------------------------------------------------------

// False when nothing that could change anything is under way.
bool Mover::go_on() {
  const u32 n_under_way = n_loading_ + n_storing_;
  pump(n_under_way > 0 ? kWaitNs : 0);
  return n_under_way + n_loading_ + n_storing_ > 0;
}

Unexpected Mover::stuck() const {
  const Figure frames{"frames", residency_->n_frames()};
  const Figure unsaved{"groups_in_memory_only", residency_->n(Where::memory)};
  if (refused_ == store::Begun::over_budget) {
    return fail({.status = Status::would_block,
                 .hint = "the KV in memory is full and the store's write budget is used up: raise "
                         "kv.memory_bytes or store.daily_write_bytes, or end a session",
                 .figures = {{frames, unsaved}}});
  }
  if (refused_ == store::Begun::no_room) {
    return fail({.status = Status::would_block,
                 .hint = "the KV in memory is full, and so is the store: raise kv.memory_bytes or "
                         "store.quota_bytes, or end a session",
                 .figures = {{frames, unsaved}}});
  }
  if (refused_ == store::Begun::not_now) {
    return fail({.status = Status::io_failed,
                 .hint = "the KV in memory is full and the store takes nothing any more: check the "
                         "disk and open the engine again, or raise kv.memory_bytes",
                 .figures = {{frames, unsaved}}});
  }
  return fail({.status = Status::would_block,
               .hint = "kv.memory_bytes holds too few groups of KV for this step: raise it, or "
                       "lower engine.batch_rows_max",
               .figures = {{frames, unsaved}}});
}

Result<void> Mover::make_room(u32 n_frames) {
  urgent_room_ = n_frames + args_.window_groups;
  const u64 start_ns = args_.clock->now_ns();
  bool possible = true, made = false;
  while (possible) {
    const u32 n_free = residency_->n_frames_free();
    const u32 n_evictable = residency_->n_evictable();
    made = n_free >= n_frames && n_free + n_evictable >= urgent_room_;
    if (made) break;
    if (n_free < n_frames && n_evictable > 0) {
      residency_->evict(residency_->victim());
      ++stats_.n_evictions;
    } else {
      possible = go_on();
    }
  }
  urgent_room_ = 0;
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
  if (!made) return stuck();
  return {};
}

Result<void> Mover::make_writable(const Sequence& sequence, u32 n) {
  const u32 page_tokens = residency_->shape().page_tokens;
  const u32 begin = sequence.n_slots() / page_tokens;
  const u32 end = static_cast<u32>(ceil_div(u64{sequence.n_slots()} + n, page_tokens));
  u32 n_frames = 0;
  const auto each_reserved = [&](auto&& on_group) {
    for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
      for (u32 group = begin; group < end; ++group) {
        const u32 group_idx = sequence.group(layer, group).idx;
        if (residency_->where(group_idx) == Where::reserved) on_group(group_idx);
      }
    }
  };
  each_reserved([&](u32) { ++n_frames; });
  if (n_frames > 0) TARN_CHECK(make_room(n_frames));
  each_reserved([&](u32 group_idx) { residency_->take_frame(group_idx); });
  return {};
}

// Waits until the group is in memory, and pins it.
Result<void> Mover::bring(u32 group_idx, u64 tick) {
  for (;;) {
    const Where where = residency_->where(group_idx);
    if (where == Where::lost) return fail(kLost);
    if (where != Where::disk && where != Where::loading) {
      residency_->pin(group_idx);
      return {};
    }
    if (where == Where::disk && begin_load(group_idx, tick, /*demanded=*/true)) continue;
    // Frames that others hold must be written before they are free.
    urgent_room_ = residency_->victim() == Residency::kNone ? n_available() + 1 : 0;
    const bool possible = go_on();
    urgent_room_ = 0;
    if (possible || residency_->where(group_idx) != Where::disk) continue;
    if (!begin_load(group_idx, tick, /*demanded=*/true)) return stuck();
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
  const u32 n = std::min(end - begin, args_.window_groups);
  TARN_ASSERT(begin < end && n <= kWindowGroupsMax);
  u32 visit = 0;
  while (visit < visits_.size() && visits_[visit].sequence != &sequence) ++visit;
  const bool is_planned = visit < visits_.size();
  window_tick_ = is_planned ? first_tick_ + position(cache_layer, visit, begin) : 0;
  used_tick_ = std::max(used_tick_, window_tick_);
  if (is_planned && ahead_.tick < window_tick_) ahead_ = {cache_layer, visit, begin, window_tick_};

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
  u32 n_pinned = 0;
  Result<void> brought{};
  for (; n_pinned < n; ++n_pinned) {
    if ((present >> n_pinned & 1) != 0) continue;
    brought = bring(sequence.group(cache_layer, begin + n_pinned).idx, window_tick_ + n_pinned);
    if (!brought) break;
  }
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
  if (brought) return n;
  const bool is_lost =
      residency_->where(sequence.group(cache_layer, begin + n_pinned).idx) == Where::lost;
  const u32 n_kept = is_lost ? 0 : n_pinned;  // a shorter window will do, if there is one
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
    const u64 next_tick = window_tick_ + (group - begin) + cycle_groups_;
    residency_->used(group_idx, window_tick_ == 0 ? 0 : next_tick);
    residency_->unpin(group_idx);
  }
}

Result<void> Mover::hold(const Sequence& sequence, u32 group_idx) {
  TARN_ASSERT(n_held_ == 0);
  for (u32 layer = 0; layer < args_.n_cache_layers; ++layer) {
    const u32 held = sequence.group(layer, group_idx).idx;
    if (Result<void> brought = bring(held, used_tick_); !brought) {
      drop_hold();
      return brought;
    }
    held_[n_held_++] = held;
    while (residency_->where(held) == Where::storing) {
      if (go_on()) continue;
      drop_hold();
      return stuck();
    }
  }
  return {};
}

void Mover::drop_hold() {
  for (const u32 group_idx : held_.first(n_held_)) residency_->unpin(group_idx);
  n_held_ = 0;
}

}  // namespace tarn::kv
