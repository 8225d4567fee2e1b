// Carries bytes into memory that the CPU cannot address. The disk or the caller fills a few pieces
// of host memory in turn, and the copy stream empties them.
//
//   memory   lent host memory (anonymous, sector-aligned: a DMA target that io_uring can register),
//            registered with the GPU; where that is unsupported, memory of the driver
//   thread   the device's
//   when full  next() waits for the oldest copy, with a limit
#pragma once

#include <array>

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

inline constexpr u32 kStagingPieces = 4;

class StagingRing {
 public:
  StagingRing() = default;
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  ~StagingRing() { close(); }

  struct Lent {
    Device* device = nullptr;  // borrowed until close(), and the clock
    Clock* clock = nullptr;
    std::span<std::byte> memory{};  // lent; a multiple of kStagingPieces sectors. Not used where it
                                    // cannot be registered.
    bool is_pinned = false;         // allocated by the driver; the lender releases it
    u64 wait_ns_max = 0;            // limit of next() and finish()
  };
  // On failure nothing is kept.
  Result<void> open(const Lent& lent);
  void close();

  u64 piece_bytes() const { return memory_.size() / kStagingPieces; }
  bool is_registered() const { return is_registered_; }
  // Returns a piece that is no longer read, to be filled; the same one until send().
  Result<std::span<std::byte>> next();
  // Enqueues a copy of the first `n_bytes` of that piece to `to`.
  void send(DeviceBytes to, u64 n_bytes);
  // Waits until everything sent has arrived; answers the device's first error.
  Result<void> finish();

 private:
  Device* device_ = nullptr;
  Clock* clock_ = nullptr;
  std::span<std::byte> memory_{};
  std::array<GpuEvent*, kStagingPieces> events_{};
  u64 wait_ns_max_ = 0;
  u32 next_ = 0;
  bool is_registered_ = false;
  bool is_reserved_ = false;
};

}  // namespace tarn
