// Tracks the progress of a stream: every few calls it enqueues an event. Two things need it. A slow
// GPU counts as alive as long as it reaches events. And a stream holds some 1,024 launches
// (kStreamLaunchesMax); then the driver blocks the caller in the next one, without a time limit. So
// the caller waits here before that.
//
//   thread     the device's
//   when full  note() waits for the oldest event
//   bound      a GPU that reaches no event for one window counts as lost; note() and finish()
//              return after that and one nap
//
//   invariant  at most (kStreamMarks + 1) * kStreamMarkCalls calls are ahead of the last event that
//              was reached
#pragma once

#include <array>

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

inline constexpr u32 kStreamMarks = 16;
inline constexpr u32 kStreamMarkCalls = 8;     // some two thirds of a layer's calls
inline constexpr u32 kStreamCallLaunches = 4;  // launches of one call at most
static_assert((kStreamMarks + 1) * kStreamMarkCalls * kStreamCallLaunches + kStreamMarks <
              kStreamLaunchesMax);

class StreamProgress {
 public:
  StreamProgress() = default;
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;
  ~StreamProgress() { close(); }

  struct Watched {
    Device* device = nullptr;  // borrowed until close(), and the clock
    GpuStream* stream = nullptr;
    Clock* clock = nullptr;
    u64 window_ns = 0;
  };
  // On failure nothing is kept.
  Result<void> open(const Watched& watched);
  void close();

  // Call after each call that enqueues, not while capturing. Declares a GPU without progress lost;
  // Device::check() answers that.
  void note();
  // Whether a new event was reached. Never blocks.
  bool advance();
  // Waits until everything enqueued is done. `usual_ns` as in wait_done().
  Result<void> finish(u64* usual_ns = nullptr);

 private:
  GpuEvent* mark(u32 idx) const { return marks_[(first_ + idx) % kStreamMarks]; }

  Watched watched_{};
  std::array<GpuEvent*, kStreamMarks> marks_{};
  GpuEvent* done_ = nullptr;
  u32 first_ = 0, n_pending_ = 0;  // marks that are not reached yet
  u32 n_calls_ = 0;                // calls since the last mark
};

}  // namespace tarn
