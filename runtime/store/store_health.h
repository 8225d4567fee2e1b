// The state of the store's disk: the store's mode, and the reason of a failure. The first failed
// sync or second failed write makes the store read-only until it is opened again. Too many read
// errors, or no answer, switch it off.
#pragma once

#include "runtime/store/store_file.h"

namespace tarn::store {

class StoreHealth {
 public:
  StoreHealth(const StoreFile& file, StoreStats& stats) : file_(file), stats_(stats) {}

  void begin(Mode mode, u32 read_errors_max);  // clears the earlier state
  void come_up() { mode_ = Mode::on; }
  void go_off(const Error& why);
  void close() { mode_ = Mode::off; }

  Mode mode() const { return mode_; }
  const Error& why() const { return why_; }
  bool may_read() const { return mode_ == Mode::on || mode_ == Mode::read_only; }

  // Record a failed request; `result` is the completion's.
  void note_write_error(i64 result);
  void note_read_error(i64 result);
  void note_failed_sync(i64 result);
  void note_unread_run(i64 result);  // too many consecutive unreadable heads
  void note_silence();               // a deadline has passed

 private:
  void fall_to(Mode mode, const char* hint, i64 result);

  const StoreFile& file_;
  StoreStats& stats_;
  Mode mode_ = Mode::off;
  Error why_{};
  u32 read_errors_max_ = 0;
};

}  // namespace tarn::store
