// Measures how fast the GPU reads its two kinds of memory. If shared memory reaches nine tenths of
// device memory (Thor's, perhaps; an Orin bypasses its cache), promoting a page copies nothing.
// Elsewhere the copy is worth it.
#pragma once

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

struct MemoryProbe {
  u64 device_bytes_per_s = 0;
  u64 shared_bytes_per_s = 0;  // 0 where host memory cannot be registered
  bool promotes_without_copy() const {
    return shared_bytes_per_s * 10 >= device_bytes_per_s * 9 && shared_bytes_per_s > 0;
  }
};

// The bytes to read of each kind. With less the probe would measure a cache, or the launch: an AGX
// Orin reads 16 MiB in 82 us, and 5 to 10 % of that is beginning and end.
inline u64 probe_bytes(const DeviceFacts& facts) {
  return 4 * facts.l2_bytes > 128 * kMiB ? 4 * facts.l2_bytes : 128 * kMiB;
}

struct MemoryProbeArgs {
  Device* device = nullptr;
  Clock* clock = nullptr;
  DeviceBytes device_memory{};  // at least n_bytes; what it holds is read, not written
  std::span<std::byte>
      host_memory{};  // n_bytes, not registered; probe_bytes() of them, or it measures less
  bool host_is_pinned = false;  // it is the driver's own, so it is not registered
  u64 wait_ns_max = 0;
};

// Takes the faster of two reads of each kind, after one that is not counted. Costs some tens of
// milliseconds on a board, mostly to register the host's memory; leaves nothing behind.
Result<MemoryProbe> probe_memory(const MemoryProbeArgs& args);

}  // namespace tarn
