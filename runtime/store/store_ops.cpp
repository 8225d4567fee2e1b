#include "runtime/store/store_ops.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::store {

void StoreOps::init(const StoreLimits& limits, Carver& carver) {
  head_bytes_max_ = limits.head_bytes_max;
  heads_ = carver.take<std::byte>("heads", limits.ops_max * head_bytes_max_, kSectorBytes);
  slots_ = carver.take<Slot>("operations", limits.ops_max);
  next_sequence_ = 1;
  clear();
}

void StoreOps::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  n_ops_ = 0;
}

Slot* StoreOps::free_slot() {
  for (Slot& slot : slots_) {
    if (slot.op == Op::none) return &slot;
  }
  return nullptr;
}

Slot& StoreOps::begin(Slot& slot, const Slot& op) {
  TARN_ASSERT(slot.op == Op::none);
  slot = op;
  slot.sequence = next_sequence_++;
  ++n_ops_;
  return slot;
}

std::span<std::byte> StoreOps::own_head(const Slot& slot) const {
  return heads_.subspan(slot_idx(slot) * head_bytes_max_, head_bytes_max_);
}

bool StoreOps::submit(Slot& slot, u32 run, const IoRequest& request) {
  IoRequest tagged = request;
  tagged.tag = tag_of(slot) + run;
  if (!file_.submit(tagged)) return false;
  ++slot.n_io;
  slot.deadline_ns = file_.next_deadline_ns();
  ++stats_.n_requests;
  const u64 bytes = request.buffer.size();
  if (request.op == IoOp::read) {
    stats_.bytes_read += bytes;
  } else {
    stats_.bytes_written += bytes;
    stats_.bytes_written_ever += bytes;
  }
  return true;
}

Slot& StoreOps::slot_of(u64 tag) {
  TARN_ASSERT(tag / kRunsOfTag < slots_.size());
  return slots_[tag / kRunsOfTag];
}

Slot* StoreOps::take(const IoCompletion& completion) {
  Slot& slot = slot_of(completion.tag);
  TARN_ASSERT(slot.n_io > 0);
  --slot.n_io;
  if (!slot.has_ended()) return &slot;
  if (slot.n_io > 0) return nullptr;
  release(slot);
  if (slot.stage == Stage::lent) {
    slot.outcome = Outcome::returned;
    slot.stage = Stage::ended;
  }
  return nullptr;
}

u64 StoreOps::first_deadline_ns() const {
  u64 first_ns = kNeverNs;
  for (const Slot& slot : slots_) {
    if (slot.n_io > 0) first_ns = std::min(first_ns, slot.deadline_ns);
  }
  return first_ns;
}

void StoreOps::end(Slot& slot, Outcome outcome) {
  TARN_ASSERT(slot.op != Op::none && !slot.has_ended());
  slot.outcome = outcome;
  slot.stage = Stage::ended;
  slot.tell_written = false;  // this event includes it
  if (slot.n_io == 0) release(slot);
}

void StoreOps::end_all(Outcome outcome) {
  for (Slot& slot : slots_) {
    if (slot.op != Op::none && !slot.has_ended()) end(slot, outcome);
  }
}

// Releases this operation's holds and frames to the index.
void StoreOps::release(Slot& slot) {
  TARN_ASSERT(slot.n_io == 0);
  if (slot.has_record && slot.op == Op::read) let_go(slot.ref);
  if (slot.has_record && slot.op == Op::put) {
    index_.fail(slot.ref);
    if (slot.replaced.frame_idx != kNoFrame) let_go(slot.replaced);
  }
  slot.has_record = false;
  if (slot.erased.frame_idx == kNoFrame) return;
  const RecordRef erased = slot.erased;
  slot.erased = {};
  // If a read still holds it, the last read frees it.
  if (index_.entry(erased).is_completed()) index_.free_completed(erased);
}

void StoreOps::let_go(RecordRef ref) {
  if (!index_.let_go(ref)) return;
  if (!is_erasing(ref)) index_.free_completed(ref);
}

bool StoreOps::is_erasing(RecordRef ref) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.erased == ref; });
}

bool StoreOps::is_dropped(RecordRef ref) const {
  const IndexEntry& entry = index_.frame(ref.frame_idx);
  return entry.life == Life::retired && entry.generation == ref.generation && entry.holds > 0 &&
         !is_erasing(ref);
}

void StoreOps::drop(RecordRef ref) {
  if (!index_.is_current(ref)) return;
  ++stats_.n_dropped;
  const bool completed = index_.retire(ref);
  TARN_ASSERT(!completed);  // the caller of drop() holds it
}

u32 StoreOps::hand_out(std::span<Event> events) {
  u32 n = 0;
  for (Slot& slot : slots_) {
    if (n == events.size()) break;
    if (slot.tell_written) {
      events[n++] = {.op = slot.op, .outcome = Outcome::written, .tag = slot.tag, .ref = slot.ref};
      slot.tell_written = false;
      slot.payload = {};
      continue;  // its own event follows
    }
    if (slot.op == Op::none || slot.stage != Stage::ended) continue;
    const bool lent = slot.n_io > 0;
    events[n++] = {
        .op = slot.op, .outcome = slot.outcome, .lent = lent, .tag = slot.tag, .ref = slot.ref};
    if (lent) {
      slot.stage = Stage::lent;
    } else {
      slot = Slot{};
      --n_ops_;
    }
  }
  return n;
}

}  // namespace tarn::store
