#include "runtime/store/store_writer.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::store {

void StoreWriter::start(u64 next_generation, u64 budget_left_bytes) {
  budget_.start(*parts_.clock, parts_.limits.write_bytes_per_day, budget_left_bytes);
  next_generation_ = next_generation;
  is_syncing_ = false;
}

Begun StoreWriter::put(const PutArgs& args) {
  if (parts_.file.mode() != Mode::on) return Begun::not_now;
  const RecordShape shape{.payload_bytes = args.payload_bytes,
                          .n_tokens = static_cast<u32>(args.token_ids.size())};
  TARN_ASSERT(args.token_ids.size() <= kTokensMax);
  TARN_ASSERT(shape.within_limits() && shape.head_bytes() <= parts_.limits.head_bytes_max);
  TARN_ASSERT(args.payload.size() == shape.payload_sectors() * kSectorBytes);
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(args.payload.data()) % kSectorBytes == 0);
  RecordIndex& index = parts_.index;
  if (index.is_on_its_way(args.key)) return Begun::known;
  const auto replaced = index.find(args.key);
  if (replaced && args.known == PutArgs::If::absent) return Begun::known;
  Slot* free = parts_.ops.free_slot();
  if (free == nullptr) return Begun::busy;
  budget_.refill();
  if (!budget_.has(shape.record_bytes())) return Begun::over_budget;
  if (replaced) index.hold(*replaced);  // until the new record is published
  const auto ref = index.reserve({.key = args.key,
                                  .shape = shape,
                                  .n_frames = shape.frames(parts_.limits.frame_bytes),
                                  .kind = args.kind,
                                  .generation = next_generation_});
  if (!ref) {
    if (replaced) parts_.ops.let_go(*replaced);
    return Begun::no_room;
  }
  ++next_generation_;
  budget_.spend(shape.record_bytes());
  Slot& slot =
      parts_.ops.begin(*free, {.op = Op::put,
                               .stage = Stage::payload,
                               .has_record = true,
                               .gives_back = args.kept == PutArgs::Payload::until_written,
                               .tag = args.tag,
                               .ref = *ref,
                               .replaced = replaced.value_or(RecordRef{}),
                               .payload = args.payload,
                               .head = parts_.ops.own_head(*free).first(shape.head_bytes())});
  encode_head(*parts_.crc, parts_.file.frame_ref(ref->frame_idx),
              {.kind = args.kind,
               .key = args.key,
               .token_ids = args.token_ids,
               .payload = args.payload,
               .payload_bytes = args.payload_bytes,
               .generation = ref->generation,
               .budget_left_bytes = budget_.level_for_head(),
               .written_bytes = parts_.stats.bytes_written_ever},
              slot.head);
  ++parts_.stats.n_puts;
  go_on_put(slot);
  return Begun::begun;
}

Begun StoreWriter::erase(RecordRef ref, u64 tag) {
  if (parts_.file.mode() != Mode::on) return Begun::not_now;
  const bool is_found = parts_.index.is_current(ref);
  if (!is_found && !parts_.ops.is_dropped(ref)) return Begun::gone;
  Slot* free = parts_.ops.free_slot();
  if (free == nullptr) return Begun::busy;
  if (is_found) parts_.index.retire(ref);
  go_on(parts_.ops.begin(
      *free,
      {.op = Op::erase, .stage = Stage::erase_waits, .tag = tag, .ref = ref, .erased = ref}));
  return Begun::begun;
}

Begun StoreWriter::flush(u64 tag) {
  if (parts_.file.mode() != Mode::on) return Begun::not_now;
  Slot* free = parts_.ops.free_slot();
  if (free == nullptr) return Begun::busy;
  parts_.ops.begin(*free, {.op = Op::flush, .stage = Stage::waiting, .tag = tag});
  return Begun::begun;
}

// Run 0 of a put is its payload, run 1 its meta sectors. The head sector is written last, and
// publishes the record.
void StoreWriter::go_on_put(Slot& slot) {
  const u64 offset = parts_.file.offset_of(slot.ref.frame_idx);
  if (slot.stage == Stage::payload) {
    const auto meta = slot.head.subspan(kSectorBytes);
    while (slot.next_run < 2 && !slot.failed) {
      const auto buffer = slot.next_run == 0 ? slot.payload : meta;
      const u64 at = slot.next_run == 0 ? offset + slot.head.size() : offset + kSectorBytes;
      const IoRequest request{.op = IoOp::write, .offset = at, .buffer = buffer};
      if (!buffer.empty() && !parts_.ops.submit(slot, slot.next_run, request)) return;
      ++slot.next_run;
    }
    if (slot.n_io == 0) end_put_stage(slot);
  } else if (slot.stage == Stage::head && slot.next_run == 0) {
    const IoRequest request{
        .op = IoOp::write, .offset = offset, .buffer = slot.head.first(kSectorBytes)};
    if (parts_.ops.submit(slot, 0, request)) ++slot.next_run;
  }
}

// All requests of this stage have ended.
void StoreWriter::end_put_stage(Slot& slot) {
  if (slot.failed) {
    // A manifest that was never reported as written must not be found at a later start, after the
    // valid one was deleted.
    const bool may_be_found = slot.stage == Stage::head && parts_.file.mode() == Mode::on &&
                              parts_.index.entry(slot.ref).kind == Kind::manifest;
    if (!may_be_found) return parts_.ops.end(slot, Outcome::io_failed);
    slot.stage = Stage::burial_waits;
    go_on(slot);
  } else if (slot.stage == Stage::payload) {
    // If the buffer changed during the write, the disk may have other bytes than the checksums.
    if (!payload_still_holds(slot)) return parts_.ops.end(slot, Outcome::corrupt);
    slot.stage = Stage::written;
    slot.written_at_ns = parts_.clock->now_ns();
    slot.tell_written = slot.gives_back;
  } else if (slot.stage == Stage::head) {
    publish(slot);
  }
}

bool StoreWriter::payload_still_holds(const Slot& slot) const {
  auto view = parse_head(*parts_.crc, parts_.file.frame_ref(slot.ref.frame_idx), slot.head);
  TARN_ASSERT(view && parse_meta(*parts_.crc, slot.head, *view));
  return sectors_hold(*parts_.crc, slot.payload.data(), view->payload_crcs());
}

void StoreWriter::publish(Slot& slot) {
  parts_.index.publish(slot.ref);
  slot.has_record = false;
  ++parts_.stats.n_published;
  const RecordRef replaced = slot.replaced;
  slot.replaced = {};
  if (replaced.frame_idx != kNoFrame && parts_.index.is_current(replaced)) {
    // The old record is erased on disk too, or a restart could find it after this one is evicted. A
    // sync of the new head comes first, or a power loss could leave neither.
    parts_.index.retire(replaced);
    slot.erased = replaced;
    slot.stage = Stage::published;
    slot.written_at_ns = parts_.clock->now_ns();
  } else {
    parts_.ops.end(slot, Outcome::ok);
  }
  // Another operation may have erased or dropped it.
  if (replaced.frame_idx != kNoFrame) parts_.ops.let_go(replaced);
}

// One sync serves many payloads: it waits for those in flight, with limits. If none is in flight,
// it waits until the next poll() begins, because the caller may put more after this poll's events.
bool StoreWriter::sync_is_due(When when) const {
  u64 n_written = 0, n_on_their_way = 0, written_bytes = 0, first_at_ns = ~u64{0};
  for (const Slot& slot : parts_.ops.all()) {
    if (flush_is_due(slot)) return true;
    if (slot.op != Op::put) continue;
    if (slot.stage == Stage::payload) ++n_on_their_way;
    if (slot.stage != Stage::written && slot.stage != Stage::published) continue;
    ++n_written;
    if (slot.stage == Stage::written) written_bytes += parts_.index.entry(slot.ref).payload_bytes;
    first_at_ns = std::min(first_at_ns, slot.written_at_ns);
  }
  if (n_written == 0) return false;
  const bool alone = n_on_their_way == 0 && when == When::poll_begins;
  return alone || n_written >= parts_.ops.all().size() / 2 ||
         written_bytes >= parts_.limits.sync_bytes ||
         parts_.clock->now_ns() - first_at_ns >= parts_.limits.sync_wait_ns;
}

void StoreWriter::go_on_sync(When when) {
  if (is_syncing_ || !sync_is_due(when)) return;
  if (!parts_.file.submit({.op = IoOp::sync_data, .tag = kSyncTag})) return;
  is_syncing_ = true;
  ++parts_.stats.n_syncs;
  sync_deadline_ns_ = parts_.file.next_deadline_ns();
  for (Slot& slot : parts_.ops.all()) {
    const bool is_written = slot.op == Op::put && slot.stage == Stage::written;
    if (is_written || flush_is_due(slot)) slot.stage = Stage::syncing;
    if (slot.stage == Stage::published) slot.stage = Stage::syncing_head;
  }
}

bool StoreWriter::flush_is_due(const Slot& slot) const {
  if (slot.op != Op::flush || slot.stage != Stage::waiting) return false;
  return std::ranges::none_of(parts_.ops.all(), [&](const Slot& other) {
    const bool writes = other.op == Op::put || other.op == Op::erase;
    return writes && !other.has_ended() && other.sequence < slot.sequence;
  });
}

void StoreWriter::take_sync(i64 result) {
  is_syncing_ = false;
  if (result < 0) parts_.file.note_failed_sync(result);
  for (Slot& slot : parts_.ops.all()) {
    if (slot.stage == Stage::syncing_head) {
      slot.stage = Stage::erase_waits;  // go_on() ends it if nothing may be written any more
      continue;
    }
    if (slot.stage != Stage::syncing) continue;
    if (result < 0) {
      parts_.ops.end(slot, Outcome::io_failed);
    } else if (slot.op == Op::flush) {
      parts_.ops.end(slot, Outcome::ok);
    } else {
      slot.stage = Stage::head;
      slot.next_run = 0;
    }
  }
}

// Writes a grave over a head. It is the youngest head, so the next start takes the write budget's
// level from it. Zeros over the youngest head would restore an older level. A grave uses the budget
// but never waits for it: a deletion must happen.
bool StoreWriter::submit_grave(Slot& slot, u32 frame_idx) {
  budget_.refill();  // the next start takes its level from this head
  WriteBudget after = budget_;
  after.spend(kSectorBytes);
  const auto head = parts_.ops.own_head(slot).first(kSectorBytes);
  encode_head(*parts_.crc, parts_.file.frame_ref(frame_idx),
              {.kind = Kind::erased,
               .generation = next_generation_,
               .budget_left_bytes = after.level_for_head(),
               .written_bytes = parts_.stats.bytes_written_ever},
              head);
  const u64 offset = parts_.file.offset_of(frame_idx);
  if (!parts_.ops.submit(slot, 0, {.op = IoOp::write, .offset = offset, .buffer = head})) {
    return false;
  }
  budget_ = after;
  ++next_generation_;
  return true;
}

void StoreWriter::go_on(Slot& slot) {
  if (slot.op == Op::put) go_on_put(slot);
  if (slot.stage == Stage::erase_waits) {  // until no read holds the record
    if (!parts_.index.entry(slot.erased).is_completed()) return;
    if (submit_grave(slot, slot.erased.frame_idx)) slot.stage = Stage::erasing;
  } else if (slot.stage == Stage::burial_waits) {
    if (submit_grave(slot, slot.ref.frame_idx)) slot.stage = Stage::burying;
  }
}

void StoreWriter::take(Slot& slot) {
  if (slot.stage == Stage::erasing) {
    if (!slot.failed) ++parts_.stats.n_erased;
    const bool has_failed = slot.failed && slot.op == Op::erase;
    parts_.ops.end(slot, has_failed ? Outcome::io_failed : Outcome::ok);
  } else if (slot.stage == Stage::burying) {
    parts_.ops.end(slot, Outcome::io_failed);  // whatever the result
  } else if (slot.op == Op::put && (slot.stage == Stage::head || slot.failed)) {
    end_put_stage(slot);
  }
}

}  // namespace tarn::store
