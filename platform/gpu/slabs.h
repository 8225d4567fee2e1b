// Device memory in slabs: computes the place of each piece before anything is reserved, and then
// reserves. The planner and the owner of the memory add the same pieces in the same order, so the
// plan is exact to the byte.
//
//   piece      memory that has to be contiguous: a tensor, a KV group, a buffer of a step
//   slab       consecutive pieces, 256-byte aligned, up to the slab's limit; a piece beyond the
//              limit has a slab of its own
//   when full  reserve() releases what it got and answers the device's error
//
//   invariant  a place ends within its slab; slabs lose nothing but the alignment of their ends:
//              total_bytes = sum of slab_bytes, each a multiple of the device's slab alignment
#pragma once

#include <array>

#include "platform/base/checked.h"
#include "platform/gpu/device.h"

namespace tarn {

inline constexpr u64 kDevicePieceAlignment =
    256;  // cudaMalloc's own, and what kernels may count on

struct SlabOffset {
  u32 slab_idx = 0;
  u64 offset_bytes = 0;
};

// Refuses a reservation that leaves the system less than its headroom; 0 bytes checks what is
// taken.
Result<void> check_headroom(const DeviceFacts& facts, const char* name, u64 bytes, u64 free_bytes);

class SlabCutter {
 public:
  SlabCutter() = default;
  explicit SlabCutter(const DeviceFacts& facts)
      : slab_bytes_max_(facts.slab_bytes_max), alignment_bytes_(facts.slab_alignment_bytes) {}

  // Returns the place of the next piece. Sizes may come from a file: a sum beyond 64 bits, or
  // beyond the table of slabs, makes the whole cut invalid.
  SlabOffset add(Checked bytes);
  // Adds `n` pieces of one size in constant time; returns the place of the first.
  SlabOffset add(Checked bytes, u64 n);

  // Returns the place of the idx-th of these pieces.
  SlabOffset of_run(SlabOffset first, u64 piece_bytes, u64 idx) const;

  bool valid() const { return valid_; }
  u32 n_slabs() const { return n_slabs_; }
  u64 slab_bytes(u32 slab_idx) const;
  Checked total_bytes() const;

 private:
  u64 slab_bytes_max_ = 0, alignment_bytes_ = 0;
  std::array<u64, kDeviceSlabsMax> filled_bytes_{};
  u32 n_slabs_ = 0;
  bool valid_ = true;
};

// Reserves and owns the slabs of a cut.
class DeviceSlabs {
 public:
  DeviceSlabs() = default;
  DeviceSlabs(const DeviceSlabs&) = delete;
  DeviceSlabs& operator=(const DeviceSlabs&) = delete;
  ~DeviceSlabs() { release(); }

  // Reserves all slabs or none. The device is borrowed until release().
  Result<void> reserve(Device& device, const SlabCutter& cut);
  void release();
  DeviceBytes at(SlabOffset at) const;
  u64 total_bytes() const;
  DeviceSlab largest() const;  // empty if there is none

 private:
  Device* device_ = nullptr;
  std::array<DeviceSlab, kDeviceSlabsMax> slabs_{};
  u32 n_slabs_ = 0;
};

}  // namespace tarn
