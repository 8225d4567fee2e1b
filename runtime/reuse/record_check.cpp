#include "runtime/reuse/record_check.h"

#include <algorithm>

namespace tarn::reuse {
namespace {

const char* reason_of(store::Outcome outcome) {
  if (outcome == store::Outcome::corrupt) return "a checksum is wrong";
  if (outcome == store::Outcome::other_tokens) return "its tokens are not those of its session";
  return "the disk cannot read it";
}

}  // namespace

Result<void> RecordCheck::begin(u64 buffer_bytes) {
  piece_sectors_ = std::max<u64>(buffer_bytes / kCopyBuffersMax / store::kSectorBytes, 1);
  return ops_.begin_groups(piece_sectors_ * store::kSectorBytes);
}

void RecordCheck::read(store::RecordRef ref) {
  const store::IndexEntry& entry = store_.index().entry(ref);
  const store::RecordShape shape{entry.payload_bytes, entry.n_tokens};
  const u64 n_sectors = shape.payload_sectors();
  ++done_.n_records;
  done_.n_bytes += shape.head_bytes();
  for (u64 first = 0; first == 0 || first < n_sectors; first += piece_sectors_) {
    begin_piece(ref, static_cast<u32>(first), std::min(piece_sectors_, n_sectors - first), {});
  }
}

void RecordCheck::read_tokens(store::RecordRef ref, std::span<const u32> token_ids) {
  begin_piece(ref, 0, 1, token_ids);
}

void RecordCheck::begin_piece(store::RecordRef ref, u32 first_sector, u64 n_sectors,
                              std::span<const u32> token_ids) {
  const u64 idx = n_begun_ % ops_.n_slots();
  judge(idx);
  if (!store_.index().is_current(ref)) return;  // an earlier piece was damaged
  BlockingStore::Slot& slot = ops_.slot(idx);
  const u64 tag = ops_.next_tag();
  const u64 n_bytes = n_sectors * store::kSectorBytes;
  store::ReadArgs args{
      .ref = ref, .token_ids = token_ids, .payload = ops_.buffer(slot).first(n_bytes), .tag = tag};
  if (n_sectors > 0) args.first_sector = first_sector;
  // A dropped record can be erased as long as it is pinned.
  store_.pin(ref);
  const store::Begun begun = ops_.begin([&](u64 new_tag) {
    args.tag = new_tag;
    return store_.read(args);
  });
  if (begun != store::Begun::begun) return store_.unpin(ref);
  slot = {.busy = true, .tag = tag};
  pieces_[idx] = {.ref = ref, .n_bytes = n_bytes, .is_read = true};
  ++n_begun_;
}

void RecordCheck::judge(u64 idx) {
  Piece& piece = pieces_[idx];
  if (!piece.is_read) return;
  piece.is_read = false;
  BlockingStore::Slot& slot = ops_.slot(idx);
  ops_.wait_for(slot);
  if (slot.outcome == store::Outcome::ok) {
    done_.n_bytes += piece.n_bytes;
  } else if (slot.outcome != store::Outcome::stalled) {  // then the store fails
    note_damage(piece.ref, reason_of(slot.outcome));
  }
  store_.unpin(piece.ref);
}

void RecordCheck::note_damage(store::RecordRef ref, const char* why) {
  if (damaged_ == ref) return;
  damaged_ = ref;
  const store::IndexEntry& entry = store_.index().entry(ref);
  const store::RecordShape shape{entry.payload_bytes, entry.n_tokens};
  ++done_.n_damaged;
  if (args_.on_damage != nullptr) {
    args_.on_damage(args_.context,
                    {entry.kind, entry.key, ref.frame_idx, shape.record_bytes(), why});
  }
  if (!args_.removes) return;
  ops_.wait_for_all();  // reads hold it, too
  const u64 n_own = 1 + static_cast<u64>(std::ranges::count_if(pieces_, [&](const Piece& piece) {
                      return piece.is_read && piece.ref == ref;
                    }));
  if (entry.holds > n_own) return;  // the erasure would wait for an open session
  const auto begun = ops_.begin([&](u64 tag) { return store_.erase(ref, tag); });
  done_.n_removed += begun == store::Begun::begun;
}

void RecordCheck::finish() {
  for (u64 idx = 0; idx < ops_.n_slots(); ++idx) judge(idx);
  ops_.wait_for_all();
}

}  // namespace tarn::reuse
