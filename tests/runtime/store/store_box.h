// One simulated disk that outlives its stores, in virtual time, and the limits of a small one.
#pragma once

#include <memory>

#include "tests/support/store_harness.h"

namespace tarn::test {

inline constexpr u64 kBoxFrameBytes = 16 * kKiB;

inline store::StoreLimits box_limits(u32 n_frames) {
  return {.file_bytes = store::kFramesBegin + n_frames * kBoxFrameBytes,
          .frame_bytes = kBoxFrameBytes,
          .head_bytes_max = 4 * kSectorBytes,
          .ops_max = 8};
}

struct StoreBox {
  explicit StoreBox(u64 seed = 1) : disk(seed) {}
  std::unique_ptr<StoreHarness> boot(const store::StoreLimits& limits, u64 entropy = 1) {
    io.reset();
    io = std::make_unique<SimIo>(disk, clock);
    auto bench = std::make_unique<StoreHarness>(*io, clock, "store", limits, entropy);
    bench->open();
    return bench;
  }
  SimDisk disk;
  VirtualClock clock;
  std::unique_ptr<SimIo> io;
};

}  // namespace tarn::test
