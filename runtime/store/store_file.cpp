#include "runtime/store/store_file.h"

#include <errno.h>

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"

namespace tarn::store {
namespace {

constexpr u32 kWriteErrorsMax = 2;

// Why nothing is written any more, and the remedy; then the store must be opened again.
const char* write_failure_hint(i64 result) {
  switch (-result) {
    case ENOSPC:
      return "the disk is full: nothing is written to the store until it is opened again; free "
             "some space, or move the folder to another disk (store.path)";
    case EDQUOT:
      return "this user's disk quota is used up: nothing is written to the store until it is "
             "opened again; raise the quota, or move the folder to another disk (store.path)";
    case EROFS:
      return "the store's file system has become read-only, as it does after errors: nothing is "
             "written until it is opened again; check the disk, and mount it writable";
    default:
      return "writes to the store's file fail: nothing is written any more until it is opened "
             "again; check the disk (dmesg), or name another folder as store.path";
  }
}

}  // namespace

Result<void> StoreFile::init(const StoreOpenArgs& args) {
  TARN_ASSERT(n_io_ == 0 && !is_open_);
  const u64 path_bytes = std::strlen(args.path);
  if (path_bytes == 0 || path_bytes >= path_.size()) {
    return fail({.status = Status::invalid_config,
                 .hint = "store: the path is empty or too long",
                 .detail = Detail(args.path),
                 .figures = {{{"bytes", path_bytes}, {"bytes_max", path_.size() - 1}}}});
  }
  std::memcpy(path_.data(), args.path, path_bytes + 1);
  io_ = args.io;
  clock_ = args.clock;
  frame_bytes_ = args.limits.frame_bytes;
  io_deadline_ns_ = args.limits.io_deadline_ns;
  read_errors_max_ = args.limits.read_errors_max;
  watched_ns_ = last_deadline_ns_ = 0;
  seen_at_ns_ = clock_->now_ns();
  return {};
}

Result<void> StoreFile::lock(bool reads_alone) {
  TARN_TRY(file_, io_->open({.path = path_.data(),
                             .write = !reads_alone,
                             .create = !reads_alone,
                             .exclusive = true}));
  is_open_ = true;
  return {};
}

void StoreFile::close() {
  TARN_ASSERT(n_io_ == 0);
  if (is_open_) io_->close(file_);
  is_open_ = false;
  io_ = nullptr;
  mode_ = Mode::off;
}

void StoreFile::abandon() {
  TARN_ASSERT(is_stuck());
  io_ = nullptr;
  n_io_ = 0;
  is_open_ = false;
}

u64 StoreFile::offset_of(u32 frame_idx) const { return kFramesBegin + frame_idx * frame_bytes_; }

FrameRef StoreFile::frame_ref(u32 frame_idx) const {
  return {.store_id = label_.store_id,
          .frame_bytes = frame_bytes_,
          .n_frames = label_.n_frames,
          .frame_idx = frame_idx};
}

bool StoreFile::submit(const IoRequest& request) {
  IoRequest of_file = request;
  of_file.file = file_;
  if (!io_->submit(of_file)) return false;
  ++n_io_;
  return true;
}

u32 StoreFile::reap(std::span<IoCompletion> completions, u64 wait_ns) {
  const u32 n = io_->reap(completions, wait_ns > 0 ? 1 : 0, wait_ns);
  TARN_ASSERT(n <= n_io_);
  n_io_ -= n;
  watch(wait_ns);
  return n;
}

// Adds the time since the last call to the watched time; waited_ns of it were a wait for the disk.
u64 StoreFile::watch(u64 waited_ns) {
  const u64 now_ns = clock_->now_ns();
  const u64 count_max_ns = std::min(waited_ns, io_deadline_ns_) + kUnwatchedMaxNs;
  watched_ns_ += std::min(now_ns - seen_at_ns_, count_max_ns);
  seen_at_ns_ = now_ns;
  return watched_ns_;
}

u64 StoreFile::next_deadline_ns() {
  last_deadline_ns_ = watch(0) + io_deadline_ns_;
  return last_deadline_ns_;
}

void StoreFile::set_mode(Mode mode, const Error& why) {
  mode_ = mode;
  why_ = why;
}

Error StoreFile::failure(const char* hint, i64 result) const {
  return {.status = Status::io_failed,
          .hint = hint,
          .detail = Detail(path_.data()),
          .figures = {{{"errno", result < 0 ? static_cast<u64>(-result) : 0}}}};
}

Error StoreFile::silence() const {
  return failure("the disk did not answer in time: the store is turned off", 0);
}

void StoreFile::note_write_error(i64 result) {
  if (++stats_.n_write_errors < kWriteErrorsMax || mode_ != Mode::on) return;
  set_mode(Mode::read_only, failure(write_failure_hint(result), result));
}

void StoreFile::note_read_error(i64 result) {
  if (++stats_.n_read_errors < read_errors_max_ || mode_ == Mode::off) return;
  set_mode(Mode::off, failure(kReadsFail, result));
}

void StoreFile::note_failed_sync(i64 result) {
  ++stats_.n_write_errors;
  if (mode_ == Mode::on) set_mode(Mode::read_only, failure(write_failure_hint(result), result));
}

}  // namespace tarn::store
