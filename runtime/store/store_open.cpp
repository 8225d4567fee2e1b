// How the store comes up: take the file for ourselves, read its label or cut a new one, read the
// first sector of every frame, weigh what was found. All of
// it by poll(), in slices; nothing that stands in the file can stop it, only a disk that fails.
#include <errno.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "platform/base/assert.h"
#include "runtime/store/store.h"

namespace tarn::store {
namespace {

constexpr u64 kRunsOfTag = 256;  // as in store_work.cpp: the slot of a scan's request
constexpr u64 kLabelTag = ~u64{0} - 2;
constexpr u32 kFramesOfSlice = 65536;

constexpr Error kOtherCut{
    .status = Status::io_failed,
    .hint =
        "the store's file is cut otherwise than when it was looked at: another program has used "
        "it in between; try again"};

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

// Frames of the label that the file has room for: fewer where a power loss left it short, or where
// somebody wrote a label for more.
u32 frames_there(const Label& label, u64 file_bytes) {
  const u64 n_bytes = file_bytes - std::min(file_bytes, kFramesBegin);
  return static_cast<u32>(std::min<u64>(label.n_frames, n_bytes / label.frame_bytes));
}

}  // namespace

Result<Cut> read_cut(IoBackend& io, const Crc32c& crc, const char* path,
                     std::span<std::byte> sectors) {
  TARN_ASSERT(sectors.size() >= kFramesBegin);
  const auto file = io.open({.path = path});
  if (!file && file.error().figures[0].value == ENOENT) return Cut{};
  if (!file) return fail(file.error());
  const Result<u64> size_bytes = io.size_bytes(*file);
  Result<Cut> cut = Cut{};
  if (!size_bytes) cut = fail(size_bytes.error());
  const u64 n_labels = size_bytes && *size_bytes >= kFramesBegin ? kLabels : 0;
  for (u64 i = 0; i < n_labels; ++i) {  // each alone: one good label suffices
    Label label;
    const auto sector = sectors.subspan(i * kSectorBytes, kSectorBytes);
    if (const auto read = io_read_exact(io, *file, i * kSectorBytes, sector); !read) {
      cut = fail(read.error());
    } else if (parse_label(crc, sector, label) == LabelState::good) {
      cut = Cut{.frame_bytes = label.frame_bytes, .n_frames = frames_there(label, *size_bytes)};
      break;
    }
  }
  io.close(*file);
  return cut;
}

bool is_disk_failure(const Error& error) {
  constexpr u64 kNoAnswer = 0;
  constexpr u64 kOfDisks[] = {kNoAnswer, EIO,   ENOSPC, EDQUOT, EROFS,
                              ENOENT,    ENXIO, ENODEV, ESTALE, ETIMEDOUT};
  const Figure& figure = error.figures[0];
  return error.status == Status::io_failed && figure.name != nullptr &&
         std::string_view(figure.name) == "errno" && std::ranges::count(kOfDisks, figure.value) > 0;
}

bool Store::submit_opening(const IoRequest& request) {
  IoRequest of_file = request;
  of_file.file = file_;
  if (!io_->submit(of_file)) return false;
  ++n_io_;
  opening_deadline_ns_ = next_deadline();
  return true;
}

void Store::fail_opening(const Error& error) {
  mode_ = Mode::off;
  why_ = error;
  if (why_.detail.empty()) why_.detail = Detail(path_.data());
}

void Store::go_on_opening() {
  switch (opening_) {
    case Opening::locking:
      return try_lock();
    case Opening::scan:
      return scan_more();
    case Opening::weigh:
      return weigh_more();
    case Opening::stale:
      return erase_stale();
    case Opening::labels:
    case Opening::each_label:
    case Opening::new_labels:
    case Opening::label_sync:
    case Opening::stale_sync:
    case Opening::done:
      return;  // their completions go on
  }
}

void Store::try_lock() {
  const auto opened =
      io_->open({.path = path_.data(), .write = true, .create = true, .exclusive = true});
  if (!opened) {
    const bool taken = opened.error().figures[0].value == EWOULDBLOCK;
    const bool may_pass = taken && clock_->now_ns() - opened_at_ns_ < limits_.lock_wait_ns;
    if (!may_pass) fail_opening(opened.error());
    return;
  }
  file_ = *opened;
  file_is_open_ = true;
  const auto size_bytes = io_->size_bytes(file_);
  if (!size_bytes) return fail_opening(size_bytes.error());
  if (*size_bytes < kFramesBegin) {
    stats_.labels_lost = *size_bytes > 0;
    return begin_new_file();
  }
  opening_ = Opening::labels;
  const IoRequest request{.op = IoOp::read, .buffer = labels_, .tag = kLabelTag};
  if (!submit_opening(request)) fail_opening({.hint = "store: its I/O backend is in use"});
}

// A disk that has lost a sector gives neither label in a request for both.
void Store::take_labels(i64 result) {
  label_is_read_.fill(result == static_cast<i64>(labels_.size()));
  if (label_is_read_[0]) return weigh_labels();
  next_label_ = 0;
  read_next_label();
}

void Store::read_next_label() {
  opening_ = Opening::each_label;
  const u64 offset = next_label_ * kSectorBytes;
  const IoRequest request{.op = IoOp::read,
                          .offset = offset,
                          .buffer = labels_.subspan(offset, kSectorBytes),
                          .tag = kLabelTag};
  const bool asked = submit_opening(request);
  TARN_ASSERT(asked);  // nothing else is in flight
}

void Store::take_label(i64 result) {
  label_is_read_[next_label_] = result == i64{kSectorBytes};
  if (++next_label_ < kLabels) return read_next_label();
  if (label_is_read_[0] || label_is_read_[1]) return weigh_labels();
  fail_opening(labels_unread(result));
}

// As a crash leaves them between the file's making and its first label.
bool Store::has_blank_labels() const {
  return std::all_of(labels_.begin(), labels_.end(), [](std::byte b) { return b == std::byte{0}; });
}

// One good label suffices. None: the file was not a store's, or both were lost; then it is a new
// store, and what lies in the file belongs to nobody. But where one could not be read, it may be
// the good one.
void Store::weigh_labels() {
  Label found[kLabels];
  LabelState states[kLabels];
  for (u64 i = 0; i < kLabels; ++i) {
    const auto sector = labels_.subspan(i * kSectorBytes, kSectorBytes);
    states[i] = label_is_read_[i] ? parse_label(*crc_, sector, found[i]) : LabelState::absent;
    if (states[i] == LabelState::newer) {
      return fail_opening({.status = Status::unsupported,
                           .hint = "the store's file was written by a newer version of Tarn: give "
                                   "this one another directory"});
    }
  }
  const bool first_is_good = states[0] == LabelState::good;
  if (!first_is_good && states[1] != LabelState::good) {
    if (label_is_read_[0] && label_is_read_[1]) {
      stats_.labels_lost = !has_blank_labels();
      return begin_new_file();
    }
    return fail_opening(labels_unread(-EIO));
  }
  const Label& label = found[first_is_good ? 0 : 1];
  const bool has_other_frames = label.frame_bytes != limits_.frame_bytes;
  const auto size_bytes = io_->size_bytes(file_);
  if (!size_bytes) return fail_opening(size_bytes.error());
  if (limits_.keeps && (has_other_frames || frames_there(label, *size_bytes) > index_.n_frames())) {
    return fail_opening(kOtherCut);
  }
  if (has_other_frames) return begin_new_file();
  const bool is_as_long = label.n_frames == index_.n_frames();
  label_ = label;
  label_.n_frames = index_.n_frames();  // what lies in the frames that stay, stays
  const u64 want_bytes = offset_of(index_.n_frames());
  if (*size_bytes != want_bytes) {  // cut short: what is missing is missing
    stats_.n_damaged_at_start += label.n_frames - frames_there(label, *size_bytes);
    const auto allocated = io_->allocate(file_, want_bytes);
    if (!allocated) return fail_opening(allocated.error());
  }
  const bool both_good = first_is_good && states[1] == LabelState::good &&
                         std::memcmp(&found[0], &found[1], sizeof(Label)) == 0;
  // The good one is left alone where it says what the other one will.
  if (!both_good || !is_as_long) return write_labels(first_is_good && is_as_long ? 1 : 0);
  opening_ = Opening::scan;
  scan_more();
}

void Store::begin_new_file() {
  file_is_new_ = true;
  const auto allocated = io_->allocate(file_, offset_of(index_.n_frames()));
  if (!allocated) return fail_opening(allocated.error());
  label_ = {.n_frames = index_.n_frames(), .frame_bytes = limits_.frame_bytes};
  label_.secret = make_secret(entropy_);
  // Records of the store that this file was before have another id, so nobody takes them for ours.
  label_.store_id = root_key(label_.secret, {}).low;
  write_labels(0);
}

void Store::write_labels(u64 first_label) {
  next_label_ = first_label;
  write_label();
}

// The second only after a sync of the first: a power loss spoils one of them at most.
void Store::write_label() {
  const u64 offset = next_label_ * kSectorBytes;
  encode_label(*crc_, label_, labels_.first(kSectorBytes));
  opening_ = Opening::new_labels;
  const IoRequest request{
      .op = IoOp::write, .offset = offset, .buffer = labels_.first(kSectorBytes), .tag = kLabelTag};
  if (!submit_opening(request)) fail_opening({.hint = "store: its I/O backend is in use"});
}

void Store::scan_more() {
  for (Slot& slot : slots_) {
    if (scan_next_ == index_.n_frames()) break;
    if (slot.n_io > 0) continue;
    const IoRequest request{.op = IoOp::read,
                            .offset = offset_of(scan_next_),
                            .buffer = own_head(slot).first(kSectorBytes),
                            .tag = slot_idx(slot) * kRunsOfTag};
    if (!submit_opening(request)) break;
    slot.n_io = 1;
    slot.deadline_ns = opening_deadline_ns_;
    slot.ref.frame_idx = scan_next_++;
    ++scan_in_flight_;
  }
  if (scan_next_ == index_.n_frames() && scan_in_flight_ == 0) {
    opening_ = Opening::weigh;
    weigh_next_ = 0;
  }
}

void Store::take_scan(Slot& slot, i64 result) {
  slot.n_io = 0;
  --scan_in_flight_;
  if (result != static_cast<i64>(kSectorBytes)) return note_unread_head(result);
  n_unread_in_a_row_ = 0;
  const u32 frame_idx = slot.ref.frame_idx;
  const auto sector = own_head(slot).first(kSectorBytes);
  const auto view = parse_head(*crc_, place_of(frame_idx), sector);
  if (!view) {
    stats_.n_damaged_at_start += u32{is_damaged_head(*crc_, place_of(frame_idx), sector)};
    return;
  }
  const bool is_record = view->kind() != Kind::erased;
  if (is_record) index_.see(frame_idx, *view);
  const RecordHead& head = view->head();
  if (is_record && view->kind() != Kind::manifest && head.generation > cursor_generation_) {
    cursor_generation_ = head.generation;
    cursor_frame_ = frame_idx;
  }
  if (head.generation <= youngest_generation_) return;
  youngest_generation_ = head.generation;
  budget_bytes_ = std::min(limits_.write_bytes_per_day, head.budget_left_bytes);
  written_before_bytes_ = head.written_bytes;
}

void Store::weigh_more() {
  for (u32 i = 0; i < kFramesOfSlice && weigh_next_ < index_.n_frames(); ++i) {
    index_.weigh(weigh_next_++);
  }
  if (weigh_next_ < index_.n_frames()) return;
  begin_stale();
}

// A crash between the publication of a manifest and the erasure of the one that it replaces leaves
// both. The older one is erased now; but first a sync, since a process that was killed may have
// left the younger one's head where a power loss could still take it.
void Store::begin_stale() {
  std::memset(labels_.data(), 0, labels_.size());  // what erases a head
  weigh_next_ = 0;
  for (u32 i = 0; i < index_.n_frames(); ++i) {
    if (index_.frame(i).life != Life::completed) continue;
    opening_ = Opening::stale_sync;
    const bool asked = submit_opening({.op = IoOp::sync_data, .tag = kLabelTag});
    TARN_ASSERT(asked);  // nothing else is in flight
    return;
  }
  finish_opening();
}

void Store::erase_stale() {
  Slot& slot = slots_[0];
  if (slot.n_io > 0) return;
  while (weigh_next_ < index_.n_frames() && index_.frame(weigh_next_).life != Life::completed) {
    ++weigh_next_;
  }
  if (weigh_next_ == index_.n_frames()) return finish_opening();
  const IoRequest request{.op = IoOp::write,
                          .offset = offset_of(weigh_next_),
                          .buffer = labels_.first(kSectorBytes),
                          .tag = 0};
  if (!submit_opening(request)) return;
  slot.n_io = 1;
  slot.deadline_ns = opening_deadline_ns_;
}

void Store::take_stale(Slot& slot, i64 result) {
  slot.n_io = 0;
  if (result != static_cast<i64>(kSectorBytes)) ++stats_.n_write_errors;  // the next start tries
  index_.free_completed({weigh_next_, index_.frame(weigh_next_).generation});
}

void Store::finish_opening() {
  index_.finish_scan(cursor_frame_);
  std::fill(slots_.begin(), slots_.end(), Slot{});
  next_generation_ = youngest_generation_ + 1;
  stats_.n_found_at_start = index_.n_records();
  stats_.scan_ns = clock_->now_ns() - opened_at_ns_;
  budget_at_ns_ = clock_->now_ns();
  opening_ = Opening::done;
  mode_ = Mode::on;
}

void Store::take_opening(const IoCompletion& completion) {
  TARN_ASSERT(n_io_ > 0);
  --n_io_;
  const bool is_label = completion.tag == kLabelTag;
  Slot* slot = is_label ? nullptr : &slots_[completion.tag / kRunsOfTag];
  if (mode_ == Mode::off) {  // it was given up before this came
    if (slot != nullptr) slot->n_io = 0;
    return;
  }
  opening_deadline_ns_ = next_deadline();
  if (opening_ == Opening::labels) return take_labels(completion.result);
  if (opening_ == Opening::each_label) return take_label(completion.result);
  if (opening_ == Opening::scan || opening_ == Opening::stale) {
    TARN_ASSERT(slot != nullptr);  // these are about records, never a label
    if (opening_ == Opening::stale) return take_stale(*slot, completion.result);
    return take_scan(*slot, completion.result);
  }
  if (opening_ == Opening::stale_sync) {
    if (completion.result < 0) return fail_opening(sync_failed(completion.result));
    opening_ = Opening::stale;
    return erase_stale();
  }
  const bool is_write = opening_ == Opening::new_labels;
  const i64 want = is_write ? i64{kSectorBytes} : 0;
  if (completion.result != want) {
    return fail_opening(
        {.status = Status::io_failed,
         .hint = "the store's label cannot be written: check the disk",
         .figures = {
             {{"errno", completion.result < 0 ? static_cast<u64>(-completion.result) : 0}}}});
  }
  if (is_write) {
    opening_ = Opening::label_sync;
    const bool asked = submit_opening({.op = IoOp::sync_data, .tag = kLabelTag});
    TARN_ASSERT(asked);  // nothing else is in flight
    return;
  }
  if (++next_label_ < kLabels) return write_label();
  // A file that is new has no records; a label that was mended has all of its own.
  opening_ = file_is_new_ ? Opening::weigh : Opening::scan;
}

}  // namespace tarn::store
