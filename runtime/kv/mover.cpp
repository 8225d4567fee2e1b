#include "runtime/kv/mover.h"

#include <algorithm>
#include <cstring>

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

u64 Mover::bookkeeping_bytes(const GroupShape& shape, u32 visits_max, u32 n_cache_layers) {
  const u64 n_sectors = shape.group_bytes() / store::kSectorBytes;
  return u64{visits_max} * sizeof(Visit) +
         align_up((n_cache_layers + n_sectors) * sizeof(u32), sizeof(u64));
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
  const auto sectors = bump.alloc<u32>(residency_->shape().group_bytes() / store::kSectorBytes);
  TARN_ASSERT(visits && held && sectors);
  sectors_ = *sectors;
  visits_storage_ = *visits;
  held_ = *held;
}

// ---- The order of uses --------------------------------------------------------------------------

u64 Mover::position(u32 layer, u32 visit, u32 use) const {
  u64 before = u64{layer} * (cycle_groups_ / args_.n_cache_layers);
  for (const Visit& v : visits_.first(visit)) before += v.n_uses();
  return before + use;
}

// Of the use of a group in the cycle under way; 0: the plan has none.
u64 Mover::tick_of(const Sequence& sequence, u32 cache_layer, u32 group, Cursor* at) const {
  u32 visit = 0;
  while (visit < visits_.size() && visits_[visit].sequence != &sequence) ++visit;
  if (visit == visits_.size()) return 0;
  const Visit& of = visits_[visit];
  if (group >= of.n_groups || of.is_offloaded(group)) return 0;
  const u32 use = group < of.offloaded_begin ? group : group - of.n_offloaded();
  const u64 tick = first_tick_ + position(cache_layer, visit, use);
  if (at != nullptr) *at = {cache_layer, visit, use, tick};
  return tick;
}

// Attention has come to this group. Its tick; 0 where the step does not plan it.
u64 Mover::note_use(const Sequence& sequence, u32 cache_layer, u32 group) {
  Cursor at{};
  const u64 tick = tick_of(sequence, cache_layer, group, &at);
  if (tick == 0) return 0;
  used_tick_ = std::max(used_tick_, tick);
  if (ahead_.tick < tick) ahead_ = at;
  return tick;
}

// Ticks of the cycle after the last one, which reads have worked ahead into, are behind these.
void Mover::begin_plan() {
  first_tick_ += 2 * cycle_groups_ + 1;  // of a plan without uses, too
  visits_ = visits_storage_.first(0);
}

void Mover::add_visit(const Visit& visit) {
  TARN_ASSERT(visits_.size() < visits_storage_.size());
  TARN_ASSERT(visit.n_groups <= visit.sequence->n_groups());
  TARN_ASSERT(visit.n_offloaded() <= visit.offloaded_end && visit.offloaded_end <= visit.n_groups);
  visits_storage_[visits_.size()] = visit;
  visits_ = visits_storage_.first(visits_.size() + 1);
}

void Mover::end_plan() {
  u64 layer_groups = 0;
  for (const Visit& visit : visits_) layer_groups += visit.n_uses();
  cycle_groups_ = layer_groups * args_.n_cache_layers;
  used_tick_ = first_tick_;
  ahead_ = {.tick = first_tick_};
  at_end_ = cycle_groups_ == 0;
  residency_->begin_cycle(first_tick_);
  u64 tick = first_tick_ + cycle_groups_;
  for (u32 layer = args_.n_cache_layers; layer-- > 0;) {
    for (u64 i = visits_.size(); i-- > 0;) {
      const Visit& visit = visits_[i];
      for (u32 use = visit.n_uses(); use-- > 0;) {
        residency_->expect(visit.sequence->group(layer, visit.group(use)).idx, --tick);
      }
    }
  }
  TARN_ASSERT(tick == first_tick_);
  if (!at_end_ && visits_[0].n_uses() == 0) at_end_ = !advance(ahead_);
}

bool Mover::advance(Cursor& cursor) const {
  if (cursor.use < visits_[cursor.visit].n_uses()) {
    ++cursor.use;
    ++cursor.tick;
  }
  while (cursor.use >= visits_[cursor.visit].n_uses()) {
    cursor.use = 0;
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

// Without a name: two openings of a store, two groups and two contents of one group never have the
// same key.
store::Key Mover::key_of(u32 group_idx) const {
  if (const u32 name = residency_->name(group_idx); name != kNoName) {
    return args_.names->key(name, residency_->named_layer(group_idx));
  }
  const std::array<u64, 3> words = {args_.nonce, group_idx, residency_->generation(group_idx)};
  return store::root_key(args_.store->secret(), std::as_bytes(std::span(words)));
}

// That the record of the group carries.
std::span<const u32> Mover::token_ids_of(u32 group_idx) const {
  const u32 name = residency_->name(group_idx);
  return name == kNoName ? std::span<const u32>{} : args_.names->token_ids(name);
}

store::Begun Mover::noted(store::Begun begun) {
  crowded_out_ = begun == store::Begun::busy;
  return begun;
}

// False where there is no place or no frame for it now.
bool Mover::begin_load(const Load& load) {
  Move* move = free_move();
  if (move == nullptr || n_loading_ >= args_.loads_max) return false;
  if (residency_->n_frames_free() == 0) {
    const u32 victim = residency_->victim();
    if (victim == Residency::kNone) return false;
    if (!load.demanded && !residency_->goes_before(victim, load.tick)) return false;
    residency_->evict(victim);
    ++stats_.n_evictions;
  }
  const store::RecordRef record = residency_->record(load.group_idx);
  const Ticket ticket = residency_->begin_loading(load.group_idx);
  const std::span<std::byte> bytes = residency_->bytes(ticket);
  const store::Begun begun = noted(args_.store->read({.ref = record,
                                                      .token_ids = token_ids_of(load.group_idx),
                                                      .payload = bytes,
                                                      .sectors = load.sectors,
                                                      .tag = tag_of(*move)}));
  if (begun == store::Begun::busy) {
    residency_->abandon_loading(ticket);
    return false;
  }
  if (begun != store::Begun::begun) {  // gone, or the store is off: it will not come back
    residency_->fail_loading(ticket);
    residency_->give_back(ticket);
    ++stats_.n_lost;
    gather_lost_ = gather_lost_ || !load.sectors.empty();
    return true;
  }
  const bool is_part = !load.sectors.empty();
  const u64 n_bytes = is_part ? load.sectors.size() * store::kSectorBytes : bytes.size();
  *move = {
      .kind = is_part ? MoveKind::part : MoveKind::load, .ticket = ticket, .group = load.group};
  ++n_loading_;
  ++stats_.n_loads;
  stats_.bytes_loaded += n_bytes;
  stats_.n_gather_reads += is_part;
  stats_.bytes_gathered += is_part ? n_bytes : 0;
  return true;
}

// A file that somebody made may have a record under the key of these tokens that is no group of
// ours: it gives way.
store::PutArgs::If Mover::what_if_known(const store::Key& key, u64 n_bytes) const {
  const auto found = args_.store->find(key);
  const bool is_ours = !found || args_.store->index().entry(*found).payload_bytes == n_bytes;
  return is_ours ? store::PutArgs::If::absent : store::PutArgs::If::replace;
}

bool Mover::begin_spill(u32 group_idx) {
  Move* move = free_move();
  if (move == nullptr || n_storing_ >= args_.spills_max) return false;
  const store::Key key = key_of(group_idx);
  const Ticket ticket = residency_->begin_storing(group_idx);
  const std::span<std::byte> bytes = residency_->bytes(ticket);
  const store::Begun begun = noted(args_.store->put({.kind = store::Kind::group,
                                                     .key = key,
                                                     .token_ids = token_ids_of(group_idx),
                                                     .payload = bytes,
                                                     .payload_bytes = bytes.size(),
                                                     .known = what_if_known(key, bytes.size()),
                                                     .tag = tag_of(*move)}));
  if (begun == store::Begun::known) return take_known(ticket, key);
  if (begun != store::Begun::begun) {
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

// A record of these tokens is there, or is being written for another group: then there is nothing
// to do but wait for it.
bool Mover::take_known(const Ticket& ticket, const store::Key& key) {
  TARN_ASSERT(residency_->name(ticket.group_idx) != kNoName);  // other keys do not repeat
  const auto found = args_.store->find(key);
  if (!found ||
      what_if_known(key, residency_->bytes(ticket).size()) != store::PutArgs::If::absent) {
    residency_->fail_storing(ticket);
    return false;
  }
  refused_ = store::Begun::begun;
  residency_->end_storing(ticket, *found);
  ++stats_.n_known;
  return true;
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
  if (residency_->is_pinned(group_idx)) return Saved::later;
  refused_ = store::Begun::begun;
  if (begin_spill(group_idx)) {
    return residency_->where(group_idx) == Where::both ? Saved::yes : Saved::later;
  }
  return refused_ == store::Begun::begun ? Saved::later : Saved::refused;
}

Unexpected Mover::why_refused() const {
  const Error& why = args_.store->why();
  if (refused_ == store::Begun::over_budget) {
    return fail({.status = Status::would_block,
                 .hint = "the session cannot be saved now, since the store's write budget is used "
                         "up: wait, or raise store.daily_write_bytes"});
  }
  if (refused_ == store::Begun::no_room || why.hint[0] == '\0') {
    return fail({.status = Status::would_block,
                 .hint = "the session cannot be saved, since the store is full of what open "
                         "sessions hold: raise store.quota_bytes, or end a session"});
  }
  return fail(why);
}

void Mover::take(const store::Event& event) {
  if (event.tag >= kMovesMax) return args_.on_other(args_.other_context, event);
  TARN_ASSERT(event.tag < moves_.size());
  Move& move = moves_[event.tag];
  TARN_ASSERT(move.kind != MoveKind::none);
  const bool is_load = move.kind != MoveKind::store;
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

// What was to be stored stays as it is until the disk has given the frame back. Nobody has held the
// record until now: in a full store it may have given way to another already.
void Mover::end_store(Move& move) {
  if (move.lent) return;
  if (!residency_->is_current(move.ticket)) {
    residency_->give_back(move.ticket);  // the record is nobody's: the store's LRU has it
  } else if (move.ok && args_.store->index().is_current(move.record)) {
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
      if (move.kind == MoveKind::part) {
        stats_.bytes_gathered_used +=
            copy_wanted(move.group, reinterpret_cast<u8*>(residency_->bytes(move.ticket).data()));
        residency_->abandon_loading(move.ticket);
      } else {
        residency_->end_loading(move.ticket);
      }
      move = {};
      return;
    }
    gather_lost_ = gather_lost_ || move.kind == MoveKind::part;
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
    const u32 group = visit.group(ahead_.use);
    if (group < visit.sequence->n_groups()) {  // it may have been cut since
      const u32 group_idx = visit.sequence->group(ahead_.layer, group).idx;
      const bool wanted = residency_->where(group_idx) == Where::disk;
      if (wanted && !begin_load({.group_idx = group_idx, .tick = ahead_.tick})) return;
    }
    at_end_ = !advance(ahead_);
  }
}

void Mover::pump(u64 timeout_ns) {
  if (timeout_ns > 0 && args_.on_wait != nullptr) args_.on_wait(args_.wait_context);
  std::array<store::Event, 64> events;
  const u32 n = args_.store->poll(events, timeout_ns);
  for (const store::Event& event : std::span(events).first(n)) take(event);
  if (stopped_) return;
  spill();
  if (urgent_room_ == 0) work_ahead();  // or it would take what is made room for
}

void Mover::settle() {
  std::array<store::Event, 64> events;
  while (n_loading_ + n_storing_ > 0) {
    const u32 n = args_.store->poll(events, kWaitNs);
    for (const store::Event& event : std::span(events).first(n)) take(event);
  }
}

// ---- Waiting ------------------------------------------------------------------------------------

// Pumps once. False when asking again would change nothing: no move is under way, nothing keeps the
// place in the store that a move was to have, and no spill found its record there. Such a spill
// frees its frame within pump() and leaves nothing under way.
bool Mover::go_on() {
  const auto is_under_way = [this] {
    return n_loading_ + n_storing_ > 0 || (crowded_out_ && args_.store->will_go_on());
  };
  const bool waits = is_under_way();
  const u64 n_known = stats_.n_known;
  crowded_out_ = false;
  pump(waits ? kWaitNs : 0);
  return waits || is_under_way() || stats_.n_known > n_known;
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
  if (crowded_out_) {
    return fail({.status = Status::would_block,
                 .hint = "all of the store's requests wait for records that sessions hold: raise "
                         "store.requests_max, or end a session",
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

// Waits until the load has begun, and says so, or what it is of is no longer on the disk alone.
Result<bool> Mover::wait_for_load(const Load& load) {
  while (residency_->where(load.group_idx) == Where::disk) {
    if (begin_load(load)) return true;
    // Frames that others hold must be written before they are free.
    urgent_room_ = residency_->victim() == Residency::kNone ? n_available() + 1 : 0;
    const bool possible = go_on();
    urgent_room_ = 0;
    if (possible || residency_->where(load.group_idx) != Where::disk) continue;
    if (!begin_load(load)) return stuck();
    return true;
  }
  return false;
}

// Waits until the group is in memory, and pins it.
Result<void> Mover::bring(u32 group_idx, u64 tick) {
  for (;;) {
    const Where where = residency_->where(group_idx);
    if (where == Where::lost) return fail(kLost);
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
  const u32 n = std::min(end - begin, args_.window_groups);
  TARN_ASSERT(begin < end && n <= kWindowGroupsMax);
  (void)note_use(sequence, cache_layer, begin);
  const auto tick = [&](u32 i) { return tick_of(sequence, cache_layer, begin + i); };

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
    const u64 tick = tick_of(sequence, cache_layer, group);
    residency_->used(group_idx, tick == 0 ? 0 : tick + cycle_groups_);
    residency_->unpin(group_idx);
  }
}

// ---- Single slots -------------------------------------------------------------------------------

Result<void> Mover::gather(const GatherArgs& args) {
  TARN_ASSERT(gather_ == nullptr && args.wanted.size() == args.out.size());
  TARN_ASSERT(args.wanted.size() == residency_->shape().n_kv_heads);
  const u64 start_ns = args_.clock->now_ns();
  gather_ = &args;
  gather_lost_ = false;
  Result<void> gathered = gather_groups();
  const auto is_reading = [this] {
    return std::any_of(moves_.begin(), moves_.end(),
                       [](const Move& move) { return move.kind == MoveKind::part && !move.lent; });
  };
  while (is_reading()) go_on();
  gather_ = nullptr;
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
  if (gathered && gather_lost_) gathered = fail(kLost);
  return gathered;
}

Result<void> Mover::gather_groups() {
  const u32 page_tokens = residency_->shape().page_tokens;
  for (u32 from = 0;;) {  // the first group that may be wanted
    u32 group = Residency::kNone;
    for (const std::span<const WantedSlot> wanted : gather_->wanted) {
      const auto next =
          std::lower_bound(wanted.begin(), wanted.end(), u64{from} * page_tokens,
                           [](const WantedSlot& w, u64 slot) { return w.slot < slot; });
      if (next != wanted.end()) group = std::min(group, next->slot / page_tokens);
    }
    if (group == Residency::kNone) return {};
    TARN_CHECK(gather_group(group));
    from = group + 1;
  }
}

Result<void> Mover::gather_group(u32 group) {
  const Sequence& sequence = *gather_->sequence;
  const u32 group_idx = sequence.group(gather_->cache_layer, group).idx;
  const bool is_offloaded = group >= gather_->offloaded_begin && group < gather_->offloaded_end;
  if (is_offloaded && residency_->where(group_idx) == Where::disk) {
    TARN_TRY(const bool has_begun, wait_for_load({.group_idx = group_idx,
                                                  .demanded = true,
                                                  .sectors = wanted_sectors(group),
                                                  .group = group}));
    if (has_begun) return {};  // else it is brought for somebody else
  }
  const u64 tick = note_use(sequence, gather_->cache_layer, group);
  const bool is_here = residency_->where(group_idx) != Where::disk;
  ++(is_here ? stats_.n_hits : stats_.n_waited);
  TARN_CHECK(bring(group_idx, tick));
  const u64 n_bytes = copy_wanted(group, residency_->group(group_idx));
  if (is_offloaded) stats_.bytes_gathered_here += n_bytes;
  residency_->used(group_idx, tick == 0 ? 0 : tick + cycle_groups_);
  residency_->unpin(group_idx);
  return {};
}

std::span<const WantedSlot> Mover::wanted_of(u32 kv_head, u32 group) const {
  const u64 page_tokens = residency_->shape().page_tokens;
  const std::span<const WantedSlot> wanted = gather_->wanted[kv_head];
  const auto from = [&](u64 first) {
    return std::lower_bound(wanted.begin(), wanted.end(), first,
                            [](const WantedSlot& w, u64 slot) { return w.slot < slot; });
  };
  return {from(group * page_tokens), from((group + u64{1}) * page_tokens)};
}

std::span<const u32> Mover::wanted_sectors(u32 group) {
  const GroupShape& shape = residency_->shape();
  const u64 slot_bytes = u64{2} * shape.vector_bytes;
  u32 n = 0;
  for (u32 head = 0; head < shape.n_kv_heads; ++head) {
    for (const WantedSlot& wanted : wanted_of(head, group)) {
      const u64 begin = head * shape.page_bytes() + wanted.slot % shape.page_tokens * slot_bytes;
      u64 sector = begin / store::kSectorBytes;
      if (n > 0) sector = std::max(sector, sectors_[n - 1] + u64{1});
      for (; sector * store::kSectorBytes < begin + slot_bytes; ++sector) {
        sectors_[n++] = static_cast<u32>(sector);
      }
    }
  }
  return sectors_.first(n);
}

// Returns how many bytes these were.
u64 Mover::copy_wanted(u32 group, const u8* bytes) {
  const GroupShape& shape = residency_->shape();
  const u64 slot_bytes = u64{2} * shape.vector_bytes;
  u64 n_bytes = 0;
  for (u32 head = 0; head < shape.n_kv_heads; ++head) {
    const u8* page = bytes + head * shape.page_bytes();
    const std::span<const WantedSlot> wanted = wanted_of(head, group);
    for (const WantedSlot& w : wanted) {
      std::memcpy(gather_->out[head] + w.place * slot_bytes,
                  page + w.slot % shape.page_tokens * slot_bytes, slot_bytes);
    }
    n_bytes += wanted.size() * slot_bytes;
  }
  return n_bytes;
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
      return fail({.status = Status::would_block,
                   .hint = "the disk still has a part of the session that this would write to, and "
                           "does not answer: check the disk, or go on at the session's end"});
    }
  }
  return {};
}

void Mover::drop_hold() {
  for (const u32 group_idx : held_.first(n_held_)) residency_->unpin(group_idx);
  n_held_ = 0;
}

}  // namespace tarn::kv
