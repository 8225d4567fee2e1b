// The store's file: its layout, its requests in flight, and their deadlines. Also the store's mode,
// which follows from how the requests end.
//
//   deadlines   count the time in which the disk was watched, not the clock's. A process that was
//               stopped for a minute (a frozen container, a paused machine) knows nothing about the
//               disk. So between two calls only kUnwatchedMaxNs count, beside reap()'s own wait
//   failures    the first failed sync or second failed write makes the store read-only until it is
//               opened again. read_errors_max read errors, or no answer, switch it off
#pragma once

#include "runtime/store/store_types.h"

namespace tarn::store {

inline constexpr u64 kUnwatchedMaxNs = 1'000'000'000;
inline constexpr u64 kNeverNs = ~u64{0};

// A request's tag: the slot of its operation, and its number among that operation's requests.
inline constexpr u64 kRunsOfTag = 256;
inline constexpr u64 kSyncTag = u64{1} << 32;
inline constexpr u64 kOpeningTag = u64{1} << 33;  // and above: requests of the opening

inline constexpr const char* kReadsFail =
    "reads of the store's file fail: it is turned off; check the disk (dmesg), or name another "
    "folder as store.path";

class StoreFile {
 public:
  explicit StoreFile(StoreStats& stats) : stats_(stats) {}

  Result<void> init(const StoreOpenArgs& args);
  // Opens and locks the file, and makes it if there is none, unless it is to be read alone.
  Result<void> lock(bool reads_alone);
  void close();    // nothing may be in flight
  void abandon();  // as store.h says
  bool has_backend() const { return io_ != nullptr; }
  bool is_open() const { return is_open_; }
  Result<u64> size_bytes() { return io_->size_bytes(file_); }
  Result<void> allocate(u64 n_bytes) { return io_->allocate(file_, n_bytes); }

  u64 offset_of(u32 frame_idx) const;
  FrameRef frame_ref(u32 frame_idx) const;
  Label& label() { return label_; }
  const Label& label() const { return label_; }

  // Returns false if the queue is full.
  bool submit(const IoRequest& request);
  u32 reap(std::span<IoCompletion> completions, u64 wait_ns);
  u32 n_io() const { return n_io_; }

  u64 next_deadline_ns();  // of a request that begins now
  u64 watch(u64 waited_ns);
  u64 watched_ns() const { return watched_ns_; }
  // Whether all requests are past their deadlines and some are still in flight.
  bool is_stuck() const { return n_io_ > 0 && watched_ns_ > last_deadline_ns_; }

  Mode mode() const { return mode_; }
  const Error& why() const { return why_; }
  void set_mode(Mode mode, const Error& why = {.status = Status::ok, .hint = ""});
  // An error with the file's path, and the errno of a completion's result.
  Error failure(const char* hint, i64 result) const;
  Error silence() const;
  // Record a failed request; `result` is the completion's.
  void note_write_error(i64 result);
  void note_read_error(i64 result);
  void note_failed_sync(i64 result);

 private:
  StoreStats& stats_;
  IoBackend* io_ = nullptr;
  Clock* clock_ = nullptr;
  IoFile file_{};
  bool is_open_ = false;
  std::array<char, 1024> path_{};
  u64 frame_bytes_ = 0;
  u64 io_deadline_ns_ = 0;
  u32 read_errors_max_ = 0;
  Label label_{};
  Mode mode_ = Mode::off;
  Error why_{};
  u32 n_io_ = 0;  // requests in flight
  u64 watched_ns_ = 0;
  u64 seen_at_ns_ = 0;  // of the clock
  u64 last_deadline_ns_ = 0;
};

}  // namespace tarn::store
