#include "runtime/kv/residency.h"

#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {

const char* where_name(Where where) {
  constexpr const char* kNames[kWheres] = {"free", "reserved", "writing", "memory", "storing",
                                           "both", "disk",     "loading", "lost"};
  return kNames[static_cast<u32>(where)];
}

u64 Residency::region_bytes(const GroupShape& shape, u32 n_frames) {
  return n_frames * shape.group_bytes();
}

u64 Residency::bookkeeping_bytes(u32 n_groups, u32 n_frames) {
  return u64{n_groups} * sizeof(Entry) + align_up(u64{n_frames} * sizeof(u32), sizeof(u64));
}

void Residency::init(const GroupShape& shape, u32 n_groups, u32 n_frames,
                     std::span<std::byte> region, std::span<std::byte> bookkeeping,
                     store::Store* store, PageNames* names) {
  TARN_ASSERT(n_groups < kNone && n_frames < kNone);
  TARN_ASSERT(region.size() >= region_bytes(shape, n_frames));
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(region.data()) % store::kSectorBytes == 0);
  shape_ = shape;
  region_ = reinterpret_cast<u8*>(region.data());
  store_ = store;
  names_ = names;
  Bump bump(bookkeeping);
  const auto entries = bump.alloc<Entry>(n_groups);
  const auto next_free = bump.alloc<u32>(n_frames);
  TARN_ASSERT(entries && next_free);
  entries_ = *entries;
  next_free_ = *next_free;
  for (Entry& entry : entries_) entry = Entry{};
  n_frames_ = n_frames;
  n_frames_free_ = 0;
  n_returning_ = n_unused_ = 0;
  free_head_ = first_idle_ = kNone;
  unsaved_ = saved_ = {};
  n_saved_ = 0;
  cycle_begin_ = 1;
  counts_ = {};
  edges_ = {};
  counts_[static_cast<u32>(Where::free)] = n_groups;
  for (u32 frame = n_frames; frame-- > 0;) push_frame(frame);
}

void Residency::move(Entry& entry, Where to) {
  ++edges_[static_cast<u32>(entry.where)][static_cast<u32>(to)];
  --counts_[static_cast<u32>(entry.where)];
  ++counts_[static_cast<u32>(to)];
  entry.where = to;
}

u32 Residency::pop_frame() {
  TARN_ASSERT(free_head_ != kNone);  // the mover made room
  const u32 frame = free_head_;
  free_head_ = next_free_[frame];
  --n_frames_free_;
  return frame;
}

void Residency::push_frame(u32 frame) {
  next_free_[frame] = free_head_;
  free_head_ = frame;
  ++n_frames_free_;
}

// ---- Lists ------------------------------------------------------------------------------------

void Residency::link(List& list, u32 group_idx, u32 after) {
  Entry& entry = entries_[group_idx];
  entry.before = after;
  entry.after = after == kNone ? list.head : entries_[after].after;
  (entry.before == kNone ? list.head : entries_[entry.before].after) = group_idx;
  (entry.after == kNone ? list.tail : entries_[entry.after].before) = group_idx;
}

void Residency::unlink(List& list, u32 group_idx) {
  Entry& entry = entries_[group_idx];
  (entry.before == kNone ? list.head : entries_[entry.before].after) = entry.after;
  (entry.after == kNone ? list.tail : entries_[entry.after].before) = entry.before;
  entry.before = entry.after = kNone;
}

// What the cycle still uses goes in front, what it has used behind all that it will use, and what
// it does not touch first among its like.
void Residency::link_saved(u32 group_idx, bool soonest) {
  const bool is_idle = entries_[group_idx].next_use < cycle_begin_;
  const u32 last_expected = first_idle_ == kNone ? saved_.tail : entries_[first_idle_].before;
  link(saved_, group_idx, soonest && !is_idle ? kNone : last_expected);
  if (is_idle) first_idle_ = group_idx;
  ++n_saved_;
}

void Residency::unlink_saved(u32 group_idx) {
  if (first_idle_ == group_idx) first_idle_ = entries_[group_idx].after;
  unlink(saved_, group_idx);
  --n_saved_;
}

void Residency::begin_cycle(u64 first_tick) {
  TARN_ASSERT(first_tick > 0);
  cycle_begin_ = first_tick;
  first_idle_ = saved_.head;
}

void Residency::expect(u32 group_idx, u64 tick) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(tick >= cycle_begin_);
  const bool is_linked = entry.where == Where::both && entry.pins == 0;
  if (is_linked) unlink_saved(group_idx);
  entry.next_use = tick;
  if (is_linked) link_saved(group_idx, /*soonest=*/true);
}

void Residency::used(u32 group_idx, u64 next_tick) {
  TARN_ASSERT(entries_[group_idx].pins > 0);
  entries_[group_idx].next_use = next_tick;
}

bool Residency::goes_before(u32 group_idx, u64 tick) const {
  const u64 next_use = entries_[group_idx].next_use;
  return next_use < cycle_begin_ || next_use > tick;
}

// ---- The owner's edges --------------------------------------------------------------------------

u8* Residency::group(u32 group_idx) {
  if (entries_[group_idx].where == Where::reserved) take_frame(group_idx);
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.frame != kNone && entry.where != Where::loading);
  TARN_ASSERT(entry.where == Where::writing || entry.pins > 0);
  return region_ + entry.frame * shape_.group_bytes();
}

void Residency::copy(u8* to, const u8* from, u64 bytes) { std::memcpy(to, from, bytes); }

void Residency::on_acquire(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::free && entry.frame == kNone && entry.pins == 0);
  entry.next_use = 0;
  move(entry, Where::reserved);
}

void Residency::take_frame(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::reserved);
  entry.frame = pop_frame();
  move(entry, Where::writing);
}

void Residency::adopt(u32 group_idx, store::RecordRef record) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::reserved);
  store_->pin(record);
  entry.record = record;
  move(entry, Where::disk);
}

void Residency::on_seal(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  if (entry.where == Where::disk) return;  // adopted
  TARN_ASSERT(entry.where == Where::writing);
  move(entry, Where::memory);
  if (entry.pins == 0) link(unsaved_, group_idx, unsaved_.tail);
}

// The record, if there is one, is of bytes that will change: the group has no more to do with it.
void Residency::on_reopen(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::memory || entry.where == Where::both);
  if (entry.where == Where::memory && entry.pins == 0) unlink(unsaved_, group_idx);
  if (entry.where == Where::both && entry.pins == 0) unlink_saved(group_idx);
  if (entry.where == Where::both) let_record_go(entry);
  let_name_go(entry);
  ++entry.generation;
  move(entry, Where::writing);
}

void Residency::on_release(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where != Where::free && entry.pins == 0);
  if (entry.where == Where::memory) unlink(unsaved_, group_idx);
  if (entry.where == Where::both) unlink_saved(group_idx);
  if (entry.where == Where::both || entry.where == Where::disk || entry.where == Where::loading) {
    let_record_go(entry);
  }
  let_name_go(entry);
  const bool is_moving = entry.where == Where::storing || entry.where == Where::loading;
  if (is_moving) {
    ++n_returning_;
  } else if (entry.frame != kNone) {
    push_frame(entry.frame);
  }
  entry.frame = kNone;
  ++entry.generation;
  mark_unused(entry, false);
  move(entry, Where::free);
}

void Residency::let_record_go(Entry& entry) {
  store_->unpin(entry.record);
  entry.record = {};
}

void Residency::set_name(u32 group_idx, u32 name, u32 cache_layer) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.name == kNoName && entry.where > Where::writing);
  names_->hold(name);
  entry.name = name;
  entry.named_layer = static_cast<u16>(cache_layer);
}

void Residency::let_name_go(Entry& entry) {
  if (entry.name != kNoName) names_->let_go(entry.name);
  entry.name = kNoName;
}

void Residency::mark_unused(Entry& entry, bool is_unused) {
  n_unused_ = n_unused_ - entry.is_unused + is_unused;
  entry.is_unused = is_unused;
}

void Residency::pin(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.frame != kNone && entry.where != Where::loading);
  if (entry.pins++ > 0) return;
  mark_unused(entry, false);
  if (entry.where == Where::memory) unlink(unsaved_, group_idx);
  if (entry.where == Where::both) unlink_saved(group_idx);
}

void Residency::unpin(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.pins > 0);
  if (--entry.pins > 0) return;
  if (entry.where == Where::memory) link(unsaved_, group_idx, unsaved_.tail);
  if (entry.where == Where::both) link_saved(group_idx, /*soonest=*/false);
}

// ---- The mover's edges --------------------------------------------------------------------------

bool Residency::is_current(const Ticket& ticket) const {
  return entries_[ticket.group_idx].generation == ticket.generation;
}

Residency::Entry& Residency::current(const Ticket& ticket, Where where) {
  Entry& entry = entries_[ticket.group_idx];
  TARN_ASSERT(entry.generation == ticket.generation);
  TARN_ASSERT(entry.where == where && entry.frame == ticket.frame);
  return entry;
}

std::span<std::byte> Residency::bytes(const Ticket& ticket) {
  const u64 group_bytes = shape_.group_bytes();
  return {reinterpret_cast<std::byte*>(region_) + ticket.frame * group_bytes, group_bytes};
}

Ticket Residency::begin_storing(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::memory && entry.pins == 0);
  unlink(unsaved_, group_idx);
  move(entry, Where::storing);
  return {.group_idx = group_idx, .generation = entry.generation, .frame = entry.frame};
}

void Residency::end_storing(const Ticket& ticket, store::RecordRef record) {
  Entry& entry = current(ticket, Where::storing);
  store_->pin(record);
  entry.record = record;
  move(entry, Where::both);
  if (entry.pins == 0) link_saved(ticket.group_idx, /*soonest=*/false);
}

void Residency::fail_storing(const Ticket& ticket) {
  Entry& entry = current(ticket, Where::storing);
  move(entry, Where::memory);
  if (entry.pins == 0) link(unsaved_, ticket.group_idx, unsaved_.tail);
}

Ticket Residency::begin_loading(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::disk && entry.pins == 0 && entry.frame == kNone);
  entry.frame = pop_frame();
  mark_unused(entry, true);
  move(entry, Where::loading);
  return {.group_idx = group_idx, .generation = entry.generation, .frame = entry.frame};
}

void Residency::abandon_loading(const Ticket& ticket) {
  Entry& entry = current(ticket, Where::loading);
  push_frame(entry.frame);
  entry.frame = kNone;
  mark_unused(entry, false);
  move(entry, Where::disk);
}

void Residency::end_loading(const Ticket& ticket) {
  Entry& entry = current(ticket, Where::loading);
  move(entry, Where::both);
  link_saved(ticket.group_idx, /*soonest=*/true);
}

void Residency::fail_loading(const Ticket& ticket) {
  Entry& entry = current(ticket, Where::loading);
  let_record_go(entry);
  entry.frame = kNone;
  ++n_returning_;
  ++entry.generation;
  mark_unused(entry, false);
  move(entry, Where::lost);
}

void Residency::give_back(const Ticket& ticket) {
  TARN_ASSERT(!is_current(ticket) && n_returning_ > 0);
  --n_returning_;
  push_frame(ticket.frame);
}

void Residency::evict(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::both && entry.pins == 0);
  unlink_saved(group_idx);
  push_frame(entry.frame);
  entry.frame = kNone;
  mark_unused(entry, false);
  move(entry, Where::disk);
}

void Residency::check_invariants() const {
  std::array<u32, kWheres> counts{};
  u32 n_held = 0, n_unsaved = 0, n_saved = 0, n_unused = 0;
  for (const Entry& entry : entries_) {
    ++counts[static_cast<u32>(entry.where)];
    const bool has_frame = entry.where == Where::writing || entry.where == Where::memory ||
                           entry.where == Where::storing || entry.where == Where::both ||
                           entry.where == Where::loading;
    const bool has_record =
        entry.where == Where::both || entry.where == Where::disk || entry.where == Where::loading;
    TARN_ASSERT(has_frame == (entry.frame != kNone));
    TARN_ASSERT(has_record == (entry.record.frame_idx != store::kNoFrame));
    TARN_ASSERT(entry.pins == 0 || (has_frame && entry.where != Where::loading));
    TARN_ASSERT(!entry.is_unused || (has_record && has_frame && entry.pins == 0));
    n_held += has_frame;
    n_unused += entry.is_unused;
    n_unsaved += entry.where == Where::memory && entry.pins == 0;
    n_saved += entry.where == Where::both && entry.pins == 0;
  }
  TARN_ASSERT(counts == counts_);
  TARN_ASSERT(n_saved == n_saved_ && n_unused == n_unused_);
  TARN_ASSERT(n_held + n_returning_ + n_frames_free_ == n_frames_);
  for (u32 idx = unsaved_.head; idx != kNone; idx = entries_[idx].after) {
    TARN_ASSERT(n_unsaved-- > 0 && entries_[idx].where == Where::memory);
  }
  bool idle = false;
  for (u32 idx = saved_.head; idx != kNone; idx = entries_[idx].after) {
    idle = idle || idx == first_idle_;
    TARN_ASSERT(n_saved-- > 0 && entries_[idx].where == Where::both);
    TARN_ASSERT(idle == (entries_[idx].next_use < cycle_begin_));
  }
  TARN_ASSERT(n_unsaved == 0 && n_saved == 0);
}

}  // namespace tarn::kv
