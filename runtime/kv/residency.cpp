#include "runtime/kv/residency.h"

#include "platform/base/assert.h"
#include "platform/base/bump.h"

namespace tarn::kv {
namespace {

constexpr bool has_frame(Where where) {
  return where == Where::writing || where == Where::memory || where == Where::storing ||
         where == Where::both || where == Where::loading;
}
constexpr bool has_record(Where where) {
  return where == Where::both || where == Where::disk || where == Where::loading;
}

}  // namespace

const char* where_name(Where where) {
  constexpr const char* kNames[kWheres] = {"free", "reserved", "writing", "memory", "storing",
                                           "both", "disk",     "loading", "lost"};
  return kNames[static_cast<u32>(where)];
}

u64 Residency::bookkeeping_bytes(u32 n_groups, u32 n_frames) {
  return u64{n_groups} * sizeof(Entry) + EvictionQueue::bookkeeping_bytes(n_groups) +
         FramePool::bookkeeping_bytes(n_frames);
}

void Residency::init(const GroupShape& shape, u32 n_groups, u32 n_frames,
                     std::span<std::byte> region, std::span<std::byte> bookkeeping,
                     store::Store* store, PageNames* names) {
  TARN_ASSERT(n_groups < kNone);
  shape_ = shape;
  store_ = store;
  names_ = names;
  Bump bump(bookkeeping);
  const auto entries = bump.alloc<Entry>(n_groups);
  const auto queue = bump.alloc_bytes(EvictionQueue::bookkeeping_bytes(n_groups), sizeof(u64));
  const auto frames = bump.alloc_bytes(FramePool::bookkeeping_bytes(n_frames), sizeof(u64));
  TARN_ASSERT(entries && queue && frames);
  entries_ = *entries;
  for (Entry& entry : entries_) entry = Entry{};
  queue_.init(n_groups, *queue);
  frames_.init(shape.group_bytes(), n_frames, region, *frames);
  stats_ = {};
  stats_.counts[static_cast<u32>(Where::free)] = n_groups;
}

// Every edge. What follows from the states alone is done here: the frame that a group has, whether
// it holds its record, and the list that it is in.
void Residency::move(u32 group_idx, Where to) {
  Entry& entry = entries_[group_idx];
  const Where from = entry.where;
  queue_.remove(group_idx);
  if (has_record(from) && !has_record(to)) {
    store_->unpin(entry.record);
    entry.record = {};
  }
  if (!has_frame(from) && has_frame(to)) entry.frame = frames_.take();
  if (has_frame(from) && !has_frame(to)) {
    const bool disk_has_it =
        (from == Where::storing || from == Where::loading) && to != Where::disk;
    disk_has_it ? frames_.lend() : frames_.put(entry.frame);
    entry.frame = kNone;
  }
  const bool is_unused = to == Where::loading || (to == Where::both && entry.is_unused);
  stats_.n_unused = stats_.n_unused - entry.is_unused + is_unused;
  entry.is_unused = is_unused;
  ++stats_.edge_counts[static_cast<u32>(from)][static_cast<u32>(to)];
  --stats_.counts[static_cast<u32>(from)];
  ++stats_.counts[static_cast<u32>(to)];
  entry.where = to;
  enqueue(group_idx);
}

// What was loaded and not read yet is used next.
void Residency::enqueue(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  if (entry.pins > 0) return;
  if (entry.where == Where::memory) queue_.push_dirty(group_idx);
  if (entry.where == Where::both) queue_.push_clean(group_idx, /*soonest=*/entry.is_unused);
}

// They change, or are nobody's any more.
void Residency::forget_bytes(Entry& entry) {
  if (entry.name != kNoName) names_->let_go(entry.name);
  entry.name = kNoName;
  ++entry.generation;
}

// ---- The owner's edges --------------------------------------------------------------------------

u8* Residency::group(u32 group_idx) {
  if (entries_[group_idx].where == Where::reserved) take_frame(group_idx);
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.frame != kNone && entry.where != Where::loading);
  TARN_ASSERT(entry.where == Where::writing || entry.pins > 0);
  return reinterpret_cast<u8*>(frames_.bytes(entry.frame).data());
}

void Residency::on_acquire(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::free && entry.frame == kNone && entry.pins == 0);
  queue_.set_next_use(group_idx, 0);
  move(group_idx, Where::reserved);
}

void Residency::take_frame(u32 group_idx) {
  TARN_ASSERT(entries_[group_idx].where == Where::reserved);
  move(group_idx, Where::writing);
}

void Residency::adopt(u32 group_idx, store::RecordRef record) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::reserved);
  store_->pin(record);
  entry.record = record;
  move(group_idx, Where::disk);
}

void Residency::on_seal(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  if (entry.where == Where::disk) return;  // adopted
  TARN_ASSERT(entry.where == Where::writing);
  move(group_idx, Where::memory);
}

// The record, if there is one, is of bytes that will change: the group has no more to do with it.
void Residency::on_reopen(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::memory || entry.where == Where::both);
  forget_bytes(entry);
  move(group_idx, Where::writing);
}

void Residency::on_release(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where != Where::free && entry.pins == 0);
  forget_bytes(entry);
  move(group_idx, Where::free);
}

void Residency::set_name(u32 group_idx, u32 name, u32 cache_layer) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.name == kNoName && entry.where > Where::writing);
  names_->hold(name);
  entry.name = name;
  entry.named_layer = static_cast<u16>(cache_layer);
}

void Residency::pin(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.frame != kNone && entry.where != Where::loading);
  if (entry.pins++ > 0) return;
  stats_.n_unused -= entry.is_unused;
  entry.is_unused = false;
  queue_.remove(group_idx);
}

void Residency::unpin(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.pins > 0);
  --entry.pins;
  enqueue(group_idx);
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

Ticket Residency::begin_storing(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::memory && entry.pins == 0);
  move(group_idx, Where::storing);
  return {.group_idx = group_idx, .generation = entry.generation, .frame = entry.frame};
}

void Residency::end_storing(const Ticket& ticket, store::RecordRef record) {
  Entry& entry = current(ticket, Where::storing);
  const bool is_published = record.frame_idx != store::kNoFrame;
  if (is_published) store_->pin(record);
  entry.record = record;
  move(ticket.group_idx, is_published ? Where::both : Where::memory);
}

Ticket Residency::begin_loading(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::disk && entry.pins == 0 && entry.frame == kNone);
  move(group_idx, Where::loading);
  return {.group_idx = group_idx, .generation = entry.generation, .frame = entry.frame};
}

void Residency::end_loading(const Ticket& ticket, LoadEnd end) {
  Entry& entry = current(ticket, Where::loading);
  if (end == LoadEnd::whole) return move(ticket.group_idx, Where::both);
  if (end == LoadEnd::abandoned) return move(ticket.group_idx, Where::disk);
  ++entry.generation;
  move(ticket.group_idx, Where::lost);
}

void Residency::give_back(const Ticket& ticket) {
  TARN_ASSERT(!is_current(ticket));
  frames_.put_lent(ticket.frame);
}

void Residency::evict(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::both && entry.pins == 0);
  move(group_idx, Where::disk);
}

void Residency::check_invariants() const {
  std::array<u32, kWheres> counts{};
  u32 n_held = 0, n_dirty = 0, n_clean = 0, n_unused = 0;
  for (const Entry& entry : entries_) {
    ++counts[static_cast<u32>(entry.where)];
    const bool is_framed = has_frame(entry.where), is_recorded = has_record(entry.where);
    TARN_ASSERT(is_framed == (entry.frame != kNone));
    TARN_ASSERT(is_recorded == (entry.record.frame_idx != store::kNoFrame));
    TARN_ASSERT(entry.pins == 0 || (is_framed && entry.where != Where::loading));
    TARN_ASSERT(!entry.is_unused || (is_recorded && is_framed && entry.pins == 0));
    n_held += is_framed;
    n_unused += entry.is_unused;
    n_dirty += entry.where == Where::memory && entry.pins == 0;
    n_clean += entry.where == Where::both && entry.pins == 0;
  }
  TARN_ASSERT(counts == stats_.counts && n_unused == stats_.n_unused);
  TARN_ASSERT(n_dirty == queue_.n_dirty() && n_clean == queue_.n_clean());
  TARN_ASSERT(n_held + frames_.n_lent() + frames_.n_free() == frames_.size());
  queue_.check_invariants();
}

}  // namespace tarn::kv
