#include "runtime/store/store_scan.h"

#include <errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "platform/base/assert.h"
#include "runtime/store/store_cut.h"

namespace tarn::store {
namespace {

constexpr u64 kLockLookNs = 1'000'000;  // between two attempts to lock the file
constexpr u64 kWaitNs = 10'000'000;     // of one look at the disk
constexpr const char* kBackendInUse = "store: its I/O backend is in use";
constexpr const char* kNoLabel = "the store's file has no readable label";
constexpr const char* kUnreadLabels = "the store's file cannot be read: check the disk";

class Scan {
 public:
  Scan(StoreParts& parts, const std::array<u8, 32>& entropy)
      : parts_(parts), file_(parts.file), index_(parts.index), entropy_(entropy) {}
  Result<Scanned> run();

 private:
  Result<u32> reap(std::span<IoCompletion> completions);
  Result<i64> wait_for(IoRequest request);
  Result<void> lock();
  Result<std::array<bool, kLabels>> read_labels();
  Result<bool> settle_labels();
  Result<bool> begin_new_file();
  Result<void> write_labels(u64 first);
  Result<void> read_heads();
  Result<void> take_head(u32 frame_idx, std::span<const std::byte> sector, i64 result);
  Result<void> erase_stale();
  Result<void> clear_damage();

  StoreParts& parts_;
  StoreFile& file_;
  RecordIndex& index_;
  const std::array<u8, 32>& entropy_;
  Scanned scanned_{};
  u32 n_unread_in_a_row_ = 0;
  u64 cursor_generation_ = 0;  // of the youngest record that is no manifest; and its frame
  u32 cursor_frame_ = 0;
};

// Waits until requests have ended; returns how many.
Result<u32> Scan::reap(std::span<IoCompletion> completions) {
  const u64 deadline_ns = file_.next_deadline_ns();
  while (file_.watched_ns() <= deadline_ns) {
    const u32 n = file_.reap(completions, kWaitNs);
    if (n > 0) return n;
  }
  return fail(file_.silence());
}

// Runs one request with nothing else in flight; returns its completion's result.
Result<i64> Scan::wait_for(IoRequest request) {
  request.tag = kOpeningTag;
  if (!file_.submit(request)) return fail({.hint = kBackendInUse});
  IoCompletion done;
  TARN_CHECK(reap({&done, 1}));
  return done.result;
}

Result<void> Scan::lock() {
  const u64 begin_ns = parts_.clock->now_ns();
  for (;;) {
    const Result<void> locked = file_.lock(parts_.limits.reads_alone);
    const bool is_taken = !locked && locked.error().figures[0].value == EWOULDBLOCK;
    const u64 waited_ns = parts_.clock->now_ns() - begin_ns;
    if (!is_taken || waited_ns >= parts_.limits.lock_wait_ns) return locked;
    parts_.clock->nap_ns(kLockLookNs);
  }
}

// Reads the labels one by one if a request for both fails: one lost sector fails both.
Result<std::array<bool, kLabels>> Scan::read_labels() {
  TARN_TRY(const i64 both, wait_for({.op = IoOp::read, .buffer = parts_.labels}));
  if (both == static_cast<i64>(parts_.labels.size())) return std::array{true, true};
  std::array<bool, kLabels> is_read{};
  i64 last = 0;
  for (u64 i = 0; i < kLabels; ++i) {
    const u64 offset = i * kSectorBytes;
    TARN_TRY(last, wait_for({.op = IoOp::read,
                             .offset = offset,
                             .buffer = parts_.labels.subspan(offset, kSectorBytes)}));
    is_read[i] = last == i64{kSectorBytes};
  }
  if (!is_read[0] && !is_read[1]) return fail(file_.failure(kUnreadLabels, last));
  return is_read;
}

// One good label suffices. Without one the file was not a store's, or both labels were lost: it
// becomes a new store, and its old content is dropped. But a label that could not be read may be
// good. Returns whether the file is new.
Result<bool> Scan::settle_labels() {
  TARN_TRY(const u64 size_bytes, file_.size_bytes());
  if (size_bytes < kFramesBegin) {
    parts_.stats.labels_lost = size_bytes > 0;
    return begin_new_file();
  }
  TARN_TRY(const auto is_read, read_labels());
  Label found[kLabels];
  LabelState states[kLabels];
  for (u64 i = 0; i < kLabels; ++i) {
    const auto sector = parts_.labels.subspan(i * kSectorBytes, kSectorBytes);
    states[i] = is_read[i] ? parse_label(*parts_.crc, sector, found[i]) : LabelState::absent;
    if (states[i] == LabelState::newer) {
      return fail({.status = Status::unsupported,
                   .reason = Reason::store_unreadable,
                   .hint = "the store's file was written by a newer version of Tarn: use another "
                           "directory with this version"});
    }
  }
  const bool first_is_good = states[0] == LabelState::good;
  if (!first_is_good && states[1] != LabelState::good) {
    if (!is_read[0] || !is_read[1]) return fail(file_.failure(kUnreadLabels, -EIO));
    // Blank ones are left by a crash between creating the file and writing its first label.
    parts_.stats.labels_lost =
        !std::ranges::all_of(parts_.labels, [](std::byte b) { return b == std::byte{0}; });
    return begin_new_file();
  }
  const Label& label = found[first_is_good ? 0 : 1];
  const u32 n_frames = index_.n_frames(), n_frames_there = frames_there(label, size_bytes);
  const bool has_other_frames = label.frame_bytes != parts_.limits.frame_bytes;
  if (parts_.limits.keeps && (has_other_frames || n_frames_there > n_frames)) {
    return fail({.status = Status::io_failed,
                 .hint = "the store's file has another layout than a moment ago: another program "
                         "has changed it; try again"});
  }
  if (has_other_frames) return begin_new_file();
  const bool is_as_long = label.n_frames == n_frames;
  file_.label() = label;
  file_.label().n_frames = n_frames;              // records in the remaining frames stay
  if (size_bytes != file_.offset_of(n_frames)) {  // truncated: the missing frames are lost
    parts_.stats.n_damaged_at_start += label.n_frames - n_frames_there;
    if (!parts_.limits.reads_alone) TARN_CHECK(file_.allocate(file_.offset_of(n_frames)));
  }
  if (parts_.limits.reads_alone) return false;
  const bool both_good = first_is_good && states[1] == LabelState::good &&
                         std::memcmp(&found[0], &found[1], sizeof(Label)) == 0;
  // A good label is not rewritten if its content stays the same.
  if (!both_good || !is_as_long) TARN_CHECK(write_labels(first_is_good && is_as_long ? 1 : 0));
  return false;
}

Result<bool> Scan::begin_new_file() {
  if (parts_.limits.reads_alone) return fail(file_.failure(kNoLabel, 0));
  TARN_CHECK(file_.allocate(file_.offset_of(index_.n_frames())));
  Label& label = file_.label();
  label = {.n_frames = index_.n_frames(), .frame_bytes = parts_.limits.frame_bytes};
  label.secret = make_secret(entropy_);
  // Records of this file's earlier store have another id, so they are never taken for ours.
  label.store_id = root_key(label.secret, {}).low;
  TARN_CHECK(write_labels(0));
  return true;
}

// Writes the second label only after a sync of the first: a power loss damages one at most.
Result<void> Scan::write_labels(u64 first) {
  const auto sector = parts_.labels.first(kSectorBytes);
  const auto failed = [&](i64 result) {
    return fail(file_.failure("the store's label cannot be written: check the disk", result));
  };
  encode_label(*parts_.crc, file_.label(), sector);
  for (u64 i = first; i < kLabels; ++i) {
    TARN_TRY(const i64 written,
             wait_for({.op = IoOp::write, .offset = i * kSectorBytes, .buffer = sector}));
    if (written != i64{kSectorBytes}) return failed(written);
    TARN_TRY(const i64 synced, wait_for({.op = IoOp::sync_data}));
    if (synced != 0) return failed(synced);
  }
  return {};
}

// As many at a time as there are operations' buffers and the disk's queue takes.
Result<void> Scan::read_heads() {
  std::array<u32, kOpsMax> free_buffers{}, frame_of{};
  u32 n_free = 0, next_frame = 0;
  for (u32 i = static_cast<u32>(parts_.ops.all().size()); i-- > 0;) free_buffers[n_free++] = i;
  const auto buffer = [&](u64 i) {
    return parts_.ops.own_head(parts_.ops.all()[i]).first(kSectorBytes);
  };
  for (;;) {
    for (; n_free > 0 && next_frame < index_.n_frames(); ++next_frame) {
      const u32 i = free_buffers[n_free - 1];
      if (!file_.submit({.op = IoOp::read,
                         .offset = file_.offset_of(next_frame),
                         .buffer = buffer(i),
                         .tag = kOpeningTag + i})) {
        break;
      }
      frame_of[i] = next_frame;
      --n_free;
    }
    if (file_.n_io() == 0) {
      if (next_frame < index_.n_frames()) return fail({.hint = kBackendInUse});
      return {};
    }
    std::array<IoCompletion, 64> completions;
    TARN_TRY(const u32 n_done, reap(completions));
    for (const IoCompletion& done : std::span(completions).first(n_done)) {
      const u32 i = static_cast<u32>(done.tag - kOpeningTag);
      free_buffers[n_free++] = i;
      TARN_CHECK(take_head(frame_of[i], buffer(i), done.result));
    }
  }
}

Result<void> Scan::take_head(u32 frame_idx, std::span<const std::byte> sector, i64 result) {
  // A few lost sectors must not prevent reading the others.
  if (result != i64{kSectorBytes}) {
    ++parts_.stats.n_unread_at_start;
    if (++n_unread_in_a_row_ < kUnreadInARowMax) return {};
    return fail(file_.failure(kReadsFail, result));
  }
  n_unread_in_a_row_ = 0;
  const FrameRef frame = file_.frame_ref(frame_idx);
  const auto view = parse_head(*parts_.crc, frame, sector);
  if (!view) {
    parts_.stats.n_damaged_at_start += u32{is_damaged_head(*parts_.crc, frame, sector)};
    return {};
  }
  const RecordHead& head = view->head();
  const bool is_record = view->kind() != Kind::erased;
  if (is_record) index_.see(frame_idx, *view);
  if (is_record && view->kind() != Kind::manifest && head.generation > cursor_generation_) {
    cursor_generation_ = head.generation;
    cursor_frame_ = frame_idx;
  }
  if (head.generation <= scanned_.youngest_generation) return {};
  scanned_ = {head.generation, head.budget_left_bytes};
  parts_.stats.bytes_written_ever = head.written_bytes;
  return {};
}

// Erases the older of two manifests with one key. A crash between publishing a manifest and erasing
// the replaced one leaves both. First a sync: after a kill the younger one's head may not be
// durable yet.
Result<void> Scan::erase_stale() {
  const auto zeros = parts_.labels.first(kSectorBytes);
  std::memset(zeros.data(), 0, zeros.size());
  bool is_synced = false;
  for (u32 i = 0; i < index_.n_frames(); ++i) {
    if (!index_.frame(i).is_completed()) continue;
    if (parts_.limits.reads_alone) {
      index_.free_completed({i, index_.frame(i).generation});
      continue;
    }
    if (!std::exchange(is_synced, true)) {
      TARN_TRY(const i64 synced, wait_for({.op = IoOp::sync_data}));
      const char* const hint = "the store's file cannot be synced: check the disk";
      if (synced < 0) return fail(file_.failure(hint, synced));
    }
    TARN_TRY(const i64 written,
             wait_for({.op = IoOp::write, .offset = file_.offset_of(i), .buffer = zeros}));
    if (written != i64{kSectorBytes}) ++parts_.stats.n_write_errors;  // the next start tries again
    index_.free_completed({i, index_.frame(i).generation});
  }
  return {};
}

// A damaged head is in the frame of no record, or it would be a part of that one.
Result<void> Scan::clear_damage() {
  const auto zeros = parts_.labels.first(kSectorBytes);
  const auto sector = parts_.labels.subspan(kSectorBytes, kSectorBytes);
  std::memset(zeros.data(), 0, zeros.size());
  for (u32 i = 0; i < index_.n_frames(); ++i) {
    if (index_.frame(i).life != Life::free) continue;
    const u64 offset = file_.offset_of(i);
    TARN_TRY(const i64 n_read, wait_for({.op = IoOp::read, .offset = offset, .buffer = sector}));
    const bool is_read = n_read == i64{kSectorBytes};
    if (is_read && !is_damaged_head(*parts_.crc, file_.frame_ref(i), sector)) continue;
    TARN_TRY(const i64 written, wait_for({.op = IoOp::write, .offset = offset, .buffer = zeros}));
    if (written != i64{kSectorBytes}) ++parts_.stats.n_write_errors;  // it is found again
  }
  return {};
}

Result<Scanned> Scan::run() {
  TARN_CHECK(lock());
  TARN_TRY(const bool is_new, settle_labels());
  if (!is_new) TARN_CHECK(read_heads());  // a new file has no records
  for (u32 i = 0; i < index_.n_frames(); ++i) index_.weigh(i);
  TARN_CHECK(erase_stale());
  if (parts_.limits.clears_damage) TARN_CHECK(clear_damage());
  index_.finish_scan(cursor_frame_);
  return scanned_;
}

}  // namespace

Result<Scanned> scan_store(StoreParts& parts, const std::array<u8, 32>& entropy) {
  return Scan(parts, entropy).run();
}

}  // namespace tarn::store
