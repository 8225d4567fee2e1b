#include "runtime/store/store_health.h"

#include <errno.h>

namespace tarn::store {
namespace {

constexpr u32 kWriteErrorsMax = 2;
constexpr const char* kReadsFail =
    "reads of the store's file fail: it is turned off; check the disk (dmesg), or name another "
    "folder as store.path";

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

void StoreHealth::begin(Mode mode, u32 read_errors_max) {
  mode_ = mode;
  why_ = {.status = Status::ok, .hint = ""};
  read_errors_max_ = read_errors_max;
}

void StoreHealth::go_off(const Error& why) {
  mode_ = Mode::off;
  why_ = why;
}

void StoreHealth::fall_to(Mode mode, const char* hint, i64 result) {
  if (mode_ == Mode::off) return;
  mode_ = mode;
  why_ = {.status = Status::io_failed,
          .hint = hint,
          .detail = Detail(file_.path()),
          .figures = {{{"errno", result < 0 ? static_cast<u64>(-result) : 0}}}};
}

void StoreHealth::note_write_error(i64 result) {
  if (++stats_.n_write_errors < kWriteErrorsMax || mode_ != Mode::on) return;
  fall_to(Mode::read_only, write_failure_hint(result), result);
}

void StoreHealth::note_read_error(i64 result) {
  if (++stats_.n_read_errors >= read_errors_max_) fall_to(Mode::off, kReadsFail, result);
}

void StoreHealth::note_failed_sync(i64 result) {
  ++stats_.n_write_errors;
  if (mode_ == Mode::on) fall_to(Mode::read_only, write_failure_hint(result), result);
}

void StoreHealth::note_unread_run(i64 result) { fall_to(Mode::off, kReadsFail, result); }

void StoreHealth::note_silence() {
  fall_to(Mode::off, "the disk did not answer in time: the store is turned off", 0);
}

}  // namespace tarn::store
