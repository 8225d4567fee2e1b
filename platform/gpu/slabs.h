// platform/gpu/slabs.h
//
// Device memory in slabs: which piece lies where, worked out before anything is reserved, and the
// reservation itself. The planner and the owner of the memory feed the same pieces in the same
// order, so the plan is what is taken, to the byte.
//
//   piece      what has to be contiguous: a tensor, a KV group, a buffer of a step
//   slab       pieces one behind the other, 256-byte aligned, up to the slab's limit; a piece that
//              is longer than the limit has a slab of its own
//   when full  reserve() gives back what it got and answers the device's error
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

struct SlabPlace {
  u32 slab_idx = 0;
  u64 offset_bytes = 0;
};

// Refuses what would leave the system less than its headroom; 0 bytes: what is taken already.
Result<void> check_headroom(const DeviceFacts& facts, const char* name, u64 bytes, u64 free_bytes);

class SlabCutter {
 public:
  SlabCutter() = default;
  explicit SlabCutter(const DeviceFacts& facts)
      : slab_bytes_max_(facts.slab_bytes_max), alignment_bytes_(facts.slab_alignment_bytes) {}

  // The place of the next piece. Sizes may come from a file: one that passes 64 bits, or the table
  // of slabs, makes the whole cut invalid.
  SlabPlace add(Checked bytes);
  // The same for `n` pieces of one size, as fast as for one; the place of the first.
  SlabPlace add(Checked bytes, u64 n);

  // The place of the idx-th of such pieces.
  SlabPlace of_run(SlabPlace first, u64 piece_bytes, u64 idx) const;

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

// The slabs of a cut, reserved. Owns them.
class DeviceSlabs {
 public:
  DeviceSlabs() = default;
  DeviceSlabs(const DeviceSlabs&) = delete;
  DeviceSlabs& operator=(const DeviceSlabs&) = delete;
  ~DeviceSlabs() { release(); }

  // All of them or none. The device is borrowed until release().
  Result<void> reserve(Device& device, const SlabCutter& cut);
  void release();
  DeviceBytes at(SlabPlace place) const;
  u64 total_bytes() const;
  DeviceSlab largest() const;  // none: of no bytes

 private:
  Device* device_ = nullptr;
  std::array<DeviceSlab, kDeviceSlabsMax> slabs_{};
  u32 n_slabs_ = 0;
};

}  // namespace tarn
