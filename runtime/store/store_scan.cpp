#include "runtime/store/store_scan.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "runtime/store/store_cut.h"

namespace tarn::store {
namespace {

constexpr u32 kFramesOfSlice = 65536;

constexpr Error kOtherCut{
    .status = Status::io_failed,
    .hint =
        "the store's file has another layout than a moment ago: another program has changed it; "
        "try again"};

Error sync_failed(i64 result) {
  return {.status = Status::io_failed,
          .hint = "the store's file cannot be synced: check the disk",
          .figures = {{{"errno", static_cast<u64>(-result)}}}};
}

Error labels_unread(i64 result) {
  return {.status = Status::io_failed,
          .hint = "the store's file cannot be read: check the disk",
          .figures = {{{"errno", result < 0 ? static_cast<u64>(-result) : 0}}}};
}

Error not_written(i64 result) {
  return {.status = Status::io_failed,
          .hint = "the store's label cannot be written: check the disk",
          .figures = {{{"errno", result < 0 ? static_cast<u64>(-result) : 0}}}};
}

// Whether the labels are blank, as after a crash between creating the file and writing its first
// label.
bool are_blank(std::span<const std::byte> labels) {
  return std::ranges::all_of(labels, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

void StoreScan::begin(std::span<std::byte> sectors, const std::array<u8, 32>& entropy) {
  stage_ = Stage::locking;
  labels_ = sectors;
  entropy_ = entropy;
  began_at_ns_ = parts_.clock->now_ns();
  file_is_new_ = false;
  label_is_read_ = {};
  n_unread_in_a_row_ = 0;
  next_head_ = n_heads_in_flight_ = next_weighed_ = 0;
  youngest_generation_ = cursor_generation_ = 0;
  cursor_frame_ = 0;
  budget_left_bytes_ = ~u64{0};
}

bool StoreScan::submit(const IoRequest& request) {
  if (!parts_.file.submit(request)) return false;
  deadline_ns_ = parts_.file.next_deadline_ns();
  return true;
}

void StoreScan::fail(const Error& error) {
  Error why = error;
  if (why.detail.empty()) why.detail = Detail(parts_.file.path());
  parts_.health.go_off(why);
}

void StoreScan::go_on() {
  switch (stage_) {
    case Stage::locking:
      return try_lock();
    case Stage::heads:
      return read_heads();
    case Stage::weigh:
      return weigh_more();
    case Stage::stale:
      return erase_stale();
    case Stage::labels:
    case Stage::each_label:
    case Stage::new_labels:
    case Stage::label_sync:
    case Stage::stale_sync:
    case Stage::done:
      return;  // their completions continue
  }
}

void StoreScan::try_lock() {
  if (const auto locked = parts_.file.lock(); !locked) {
    const bool taken = locked.error().figures[0].value == EWOULDBLOCK;
    const bool may_pass =
        taken && parts_.clock->now_ns() - began_at_ns_ < parts_.limits.lock_wait_ns;
    if (!may_pass) fail(locked.error());
    return;
  }
  const auto size_bytes = parts_.file.size_bytes();
  if (!size_bytes) return fail(size_bytes.error());
  if (*size_bytes < kFramesBegin) {
    parts_.stats.labels_lost = *size_bytes > 0;
    return begin_new_file();
  }
  stage_ = Stage::labels;
  const IoRequest request{.op = IoOp::read, .buffer = labels_, .tag = kLabelTag};
  if (!submit(request)) fail({.hint = "store: its I/O backend is in use"});
}

// Reads the labels one by one if a request for both failed: one lost sector fails both.
void StoreScan::take_labels(i64 result) {
  label_is_read_.fill(result == static_cast<i64>(labels_.size()));
  if (label_is_read_[0]) return weigh_labels();
  next_label_ = 0;
  read_next_label();
}

void StoreScan::read_next_label() {
  stage_ = Stage::each_label;
  const u64 offset = next_label_ * kSectorBytes;
  const IoRequest request{.op = IoOp::read,
                          .offset = offset,
                          .buffer = labels_.subspan(offset, kSectorBytes),
                          .tag = kLabelTag};
  const bool asked = submit(request);
  TARN_ASSERT(asked);  // nothing else is in flight
}

void StoreScan::take_label(i64 result) {
  label_is_read_[next_label_] = result == i64{kSectorBytes};
  if (++next_label_ < kLabels) return read_next_label();
  if (label_is_read_[0] || label_is_read_[1]) return weigh_labels();
  fail(labels_unread(result));
}

// One good label suffices. Without one the file was not a store's, or both labels were lost: it
// becomes a new store, and its old content is dropped. But a label that could not be read may be
// good.
void StoreScan::weigh_labels() {
  Label found[kLabels];
  LabelState states[kLabels];
  for (u64 i = 0; i < kLabels; ++i) {
    const auto sector = labels_.subspan(i * kSectorBytes, kSectorBytes);
    states[i] = label_is_read_[i] ? parse_label(*parts_.crc, sector, found[i]) : LabelState::absent;
    if (states[i] == LabelState::newer) {
      return fail({.status = Status::unsupported,
                   .hint = "the store's file was written by a newer version of Tarn: use another "
                           "directory with this version"});
    }
  }
  const bool first_is_good = states[0] == LabelState::good;
  if (!first_is_good && states[1] != LabelState::good) {
    if (label_is_read_[0] && label_is_read_[1]) {
      parts_.stats.labels_lost = !are_blank(labels_);
      return begin_new_file();
    }
    return fail(labels_unread(-EIO));
  }
  const Label& label = found[first_is_good ? 0 : 1];
  const bool has_other_frames = label.frame_bytes != parts_.limits.frame_bytes;
  const auto size_bytes = parts_.file.size_bytes();
  if (!size_bytes) return fail(size_bytes.error());
  if (parts_.limits.keeps &&
      (has_other_frames || frames_there(label, *size_bytes) > parts_.index.n_frames())) {
    return fail(kOtherCut);
  }
  if (has_other_frames) return begin_new_file();
  const bool is_as_long = label.n_frames == parts_.index.n_frames();
  parts_.file.label() = label;
  parts_.file.label().n_frames = parts_.index.n_frames();  // records in the remaining frames stay
  const u64 want_bytes = parts_.file.offset_of(parts_.index.n_frames());
  if (*size_bytes != want_bytes) {  // truncated: the missing frames are lost
    parts_.stats.n_damaged_at_start += label.n_frames - frames_there(label, *size_bytes);
    const auto allocated = parts_.file.allocate(want_bytes);
    if (!allocated) return fail(allocated.error());
  }
  const bool both_good = first_is_good && states[1] == LabelState::good &&
                         std::memcmp(&found[0], &found[1], sizeof(Label)) == 0;
  // A good label is not rewritten if its content stays the same.
  if (!both_good || !is_as_long) {
    next_label_ = first_is_good && is_as_long ? 1 : 0;
    return write_label();
  }
  stage_ = Stage::heads;
  read_heads();
}

void StoreScan::begin_new_file() {
  file_is_new_ = true;
  const auto allocated = parts_.file.allocate(parts_.file.offset_of(parts_.index.n_frames()));
  if (!allocated) return fail(allocated.error());
  Label& label = parts_.file.label();
  label = {.n_frames = parts_.index.n_frames(), .frame_bytes = parts_.limits.frame_bytes};
  label.secret = make_secret(entropy_);
  // Records of this file's earlier store have another id, so they are never taken for ours.
  label.store_id = root_key(label.secret, {}).low;
  next_label_ = 0;
  write_label();
}

// Writes the second label only after a sync of the first: a power loss damages one at most.
void StoreScan::write_label() {
  const u64 offset = next_label_ * kSectorBytes;
  encode_label(*parts_.crc, parts_.file.label(), labels_.first(kSectorBytes));
  stage_ = Stage::new_labels;
  const IoRequest request{
      .op = IoOp::write, .offset = offset, .buffer = labels_.first(kSectorBytes), .tag = kLabelTag};
  if (!submit(request)) fail({.hint = "store: its I/O backend is in use"});
}

void StoreScan::read_heads() {
  for (Slot& slot : parts_.ops.all()) {
    if (next_head_ == parts_.index.n_frames()) break;
    if (slot.n_io > 0) continue;
    const IoRequest request{.op = IoOp::read,
                            .offset = parts_.file.offset_of(next_head_),
                            .buffer = parts_.ops.own_head(slot).first(kSectorBytes),
                            .tag = parts_.ops.tag_of(slot)};
    if (!submit(request)) break;
    slot.n_io = 1;
    slot.deadline_ns = deadline_ns_;
    slot.ref.frame_idx = next_head_++;
    ++n_heads_in_flight_;
  }
  if (next_head_ == parts_.index.n_frames() && n_heads_in_flight_ == 0) {
    stage_ = Stage::weigh;
    next_weighed_ = 0;
  }
}

void StoreScan::take_head(Slot& slot, i64 result) {
  slot.n_io = 0;
  --n_heads_in_flight_;
  // A few lost sectors must not prevent reading the others.
  if (result != static_cast<i64>(kSectorBytes)) {
    ++parts_.stats.n_unread_at_start;
    if (++n_unread_in_a_row_ >= kUnreadInARowMax) parts_.health.note_unread_run(result);
    return;
  }
  n_unread_in_a_row_ = 0;
  const u32 frame_idx = slot.ref.frame_idx;
  const auto sector = parts_.ops.own_head(slot).first(kSectorBytes);
  const auto view = parse_head(*parts_.crc, parts_.file.place_of(frame_idx), sector);
  if (!view) {
    parts_.stats.n_damaged_at_start +=
        u32{is_damaged_head(*parts_.crc, parts_.file.place_of(frame_idx), sector)};
    return;
  }
  const bool is_record = view->kind() != Kind::erased;
  if (is_record) parts_.index.see(frame_idx, *view);
  const RecordHead& head = view->head();
  if (is_record && view->kind() != Kind::manifest && head.generation > cursor_generation_) {
    cursor_generation_ = head.generation;
    cursor_frame_ = frame_idx;
  }
  if (head.generation <= youngest_generation_) return;
  youngest_generation_ = head.generation;
  budget_left_bytes_ = head.budget_left_bytes;
  parts_.stats.bytes_written_ever = head.written_bytes;
}

void StoreScan::weigh_more() {
  for (u32 i = 0; i < kFramesOfSlice && next_weighed_ < parts_.index.n_frames(); ++i) {
    parts_.index.weigh(next_weighed_++);
  }
  if (next_weighed_ < parts_.index.n_frames()) return;
  begin_stale();
}

// Erases the older of two manifests with one key. A crash between publishing a manifest and erasing
// the replaced one leaves both. First a sync: after a kill the younger one's head may not be
// durable yet.
void StoreScan::begin_stale() {
  std::memset(labels_.data(), 0, labels_.size());  // zeros erase a head
  next_weighed_ = 0;
  for (u32 i = 0; i < parts_.index.n_frames(); ++i) {
    if (parts_.index.frame(i).life != Life::completed) continue;
    stage_ = Stage::stale_sync;
    const bool asked = submit({.op = IoOp::sync_data, .tag = kLabelTag});
    TARN_ASSERT(asked);  // nothing else is in flight
    return;
  }
  finish();
}

void StoreScan::erase_stale() {
  Slot& slot = parts_.ops.all()[0];
  if (slot.n_io > 0) return;
  while (next_weighed_ < parts_.index.n_frames() &&
         parts_.index.frame(next_weighed_).life != Life::completed) {
    ++next_weighed_;
  }
  if (next_weighed_ == parts_.index.n_frames()) return finish();
  const IoRequest request{.op = IoOp::write,
                          .offset = parts_.file.offset_of(next_weighed_),
                          .buffer = labels_.first(kSectorBytes),
                          .tag = 0};
  if (!submit(request)) return;
  slot.n_io = 1;
  slot.deadline_ns = deadline_ns_;
}

void StoreScan::take_stale(Slot& slot, i64 result) {
  slot.n_io = 0;
  const bool is_written = result == static_cast<i64>(kSectorBytes);
  if (!is_written) ++parts_.stats.n_write_errors;  // the next start tries again
  parts_.index.free_completed({next_weighed_, parts_.index.frame(next_weighed_).generation});
}

void StoreScan::finish() {
  parts_.index.finish_scan(cursor_frame_);
  parts_.ops.clear();
  parts_.stats.n_found_at_start = parts_.index.n_records();
  parts_.stats.scan_ns = parts_.clock->now_ns() - began_at_ns_;
  stage_ = Stage::done;
}

// A label was written or synced.
void StoreScan::take_written(i64 result) {
  const bool is_write = stage_ == Stage::new_labels;
  if (result != (is_write ? i64{kSectorBytes} : 0)) return fail(not_written(result));
  if (is_write) {
    stage_ = Stage::label_sync;
    const bool asked = submit({.op = IoOp::sync_data, .tag = kLabelTag});
    TARN_ASSERT(asked);  // nothing else is in flight
    return;
  }
  if (++next_label_ < kLabels) return write_label();
  // A new file has no records; a repaired label keeps all of them.
  stage_ = file_is_new_ ? Stage::weigh : Stage::heads;
}

void StoreScan::take(const IoCompletion& completion) {
  const bool is_label = completion.tag == kLabelTag;
  Slot* slot = is_label ? nullptr : &parts_.ops.slot_of(completion.tag);
  if (parts_.health.mode() == Mode::off) {  // the store was switched off before this completion
    if (slot != nullptr) slot->n_io = 0;
    return;
  }
  deadline_ns_ = parts_.file.next_deadline_ns();
  const i64 result = completion.result;
  switch (stage_) {
    case Stage::labels:
      return take_labels(result);
    case Stage::each_label:
      return take_label(result);
    case Stage::heads:
      TARN_ASSERT(slot != nullptr);
      return take_head(*slot, result);
    case Stage::stale:
      TARN_ASSERT(slot != nullptr);
      return take_stale(*slot, result);
    case Stage::stale_sync:
      if (result < 0) return fail(sync_failed(result));
      stage_ = Stage::stale;
      return erase_stale();
    case Stage::new_labels:
    case Stage::label_sync:
      return take_written(result);
    case Stage::locking:
    case Stage::weigh:
    case Stage::done:
      TARN_ASSERT(false);  // no request was made
  }
}

}  // namespace tarn::store
