#include "runtime/kv/residency.h"

#include <algorithm>

#include "platform/base/assert.h"

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

void Residency::init(Carver& carver, const Memory& memory) {
  TARN_ASSERT(memory.n_groups < kNone);
  memory_ = memory;
  entries_ = carver.take<Entry>("entries", memory.n_groups);
  queue_.init(carver, memory.n_groups);
  free_frames_.init(carver, memory.n_frames);
  TARN_ASSERT(memory.frames.size() >= n_frames() * shape().group_bytes());
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(memory.frames.data()) % 4096 == 0);
  std::ranges::fill(entries_, Entry{});
  stats_ = {};
  stats_.counts[static_cast<u32>(Where::free)] = memory.n_groups;
}

// Takes any edge. It also does what follows from the states alone: the frame that a group has,
// whether it holds its record, and the list that it is in.
void Residency::move(u32 group_idx, Where to) {
  Entry& entry = entries_[group_idx];
  const Where from = entry.where;
  queue_.remove(group_idx);
  if (has_record(from) && !has_record(to)) {
    memory_.store->unpin(entry.record);
    entry.record = {};
  }
  if (!has_frame(from) && has_frame(to)) entry.frame = free_frames_.take();
  if (has_frame(from) && !has_frame(to)) {
    const bool disk_has_it =
        (from == Where::storing || from == Where::loading) && to != Where::disk;
    if (disk_has_it) {
      ++stats_.n_lent_frames;
    } else {
      free_frames_.put(entry.frame);
    }
    entry.frame = kNone;
  }
  const bool is_unused = to == Where::loading || (to == Where::both && entry.is_unused);
  stats_.n_unused = stats_.n_unused - entry.is_unused + is_unused;
  entry.is_unused = is_unused;
  --stats_.counts[static_cast<u32>(from)];
  ++stats_.counts[static_cast<u32>(to)];
  entry.where = to;
  enqueue(group_idx);
}

// Queues the group; one that was loaded and not read yet is used next.
void Residency::enqueue(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  if (entry.pins > 0) return;
  if (entry.where == Where::memory) queue_.push_dirty(group_idx);
  if (entry.where == Where::both) queue_.push_clean(group_idx, /*soonest=*/entry.is_unused);
}

// ---- The owner's edges --------------------------------------------------------------------------

u8* Residency::group(u32 group_idx) {
  if (entries_[group_idx].where == Where::reserved) move(group_idx, Where::writing);
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.frame != kNone && entry.where != Where::loading);
  TARN_ASSERT(entry.where == Where::writing || entry.pins > 0);
  return reinterpret_cast<u8*>(frame(entry.frame).data());
}

void Residency::on_acquire(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::free && entry.frame == kNone && entry.pins == 0);
  queue_.set_next_use(group_idx, 0);
  move(group_idx, Where::reserved);
}

void Residency::adopt(u32 group_idx, store::RecordRef record) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::reserved);
  memory_.store->pin(record);
  entry.record = record;
  move(group_idx, Where::disk);
}

void Residency::on_seal(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  if (entry.where == Where::disk) return;  // adopted
  TARN_ASSERT(entry.where == Where::writing);
  move(group_idx, Where::memory);
}

// Parts the group from its record, if there is one, since its bytes will change.
void Residency::on_reopen(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::memory || entry.where == Where::both);
  ++entry.generation;
  move(group_idx, Where::writing);
}

void Residency::on_release(u32 group_idx) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where != Where::free && entry.pins == 0);
  ++entry.generation;
  move(group_idx, Where::free);
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
  if (is_published) memory_.store->pin(record);
  entry.record = record;
  move(ticket.group_idx, is_published ? Where::both : Where::memory);
}

Ticket Residency::begin_loading(u32 group_idx, bool is_later) {
  Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::disk && entry.pins == 0 && entry.frame == kNone);
  move(group_idx, Where::loading);
  stats_.n_unused -= is_later;
  entry.is_unused = !is_later;
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
  TARN_ASSERT(stats_.n_lent_frames > 0);
  --stats_.n_lent_frames;
  free_frames_.put(ticket.frame);
}

void Residency::evict(u32 group_idx) {
  const Entry& entry = entries_[group_idx];
  TARN_ASSERT(entry.where == Where::both && entry.pins == 0);
  move(group_idx, Where::disk);
}

}  // namespace tarn::kv
