// platform/gpu/stream_progress.h
//
// How far a stream has come: an event stands behind every few calls that enqueue. Two things need
// it. A GPU that is slow is alive as long as it reaches an event now and then, however long the
// whole takes. And a stream takes some 1,024 launches (kStreamLaunchesMax), then the driver keeps
// the caller in the next one, where nobody looks at the time: so the caller waits here before that.
//
//   thread     the device's
//   when full  note() waits for the oldest event
//   bound      a GPU that stops is lost when no event was reached for one window: note() and
//              finish() return after that and one nap
//
//   invariant  at most (kStreamMarks + 1) * kStreamMarkCalls calls are ahead of what was reached
#pragma once

#include <array>

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

inline constexpr u32 kStreamMarks = 16;
inline constexpr u32 kStreamMarkCalls = 8;     // some two thirds of a layer's
inline constexpr u32 kStreamCallLaunches = 4;  // of one call, at most
static_assert((kStreamMarks + 1) * kStreamMarkCalls * kStreamCallLaunches + kStreamMarks <
              kStreamLaunchesMax);

class StreamProgress {
 public:
  StreamProgress() = default;
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;
  ~StreamProgress() { close(); }

  struct Args {
    Device* device = nullptr;  // borrowed until close(), and the clock
    GpuStream* stream = nullptr;
    Clock* clock = nullptr;
    u64 window_ns = 0;
  };
  // On failure nothing is kept.
  Result<void> open(const Args& args);
  void close();

  // After each call that enqueued, not while capturing. A GPU that does not go on is lost then,
  // which the device tells.
  void note();
  // Whether an event was reached that was not before. Never blocks.
  bool advance();
  // Until all that was enqueued is done. `usual_ns`: wait_done()'s.
  Result<void> finish(u64* usual_ns = nullptr);

 private:
  GpuEvent* mark(u32 idx) const { return marks_[(first_ + idx) % kStreamMarks]; }

  Args args_{};
  std::array<GpuEvent*, kStreamMarks> marks_{};
  GpuEvent* done_ = nullptr;
  u32 first_ = 0, n_pending_ = 0;  // marks that were not reached
  u32 n_calls_ = 0;                // since the last mark
};

}  // namespace tarn
