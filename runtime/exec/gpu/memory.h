// The engine's memory on a GPU: the plan's slabs, reserved, and where each piece of the plan lies
// in them. It is where the loader's weights go and where the pool's groups lie.
//
//   order    the planner's: weights, groups, activations, attention, logits, select_device,
//            select_gather, kv_device; fed to a second cutter, so places need no table
//   copies   of KV on the compute stream, in order with the kernels that use it
//   thread   the engine's
//   errors   reserve() answers the device's and keeps nothing; copies tell theirs in
//            Device::check()
#pragma once

#include "platform/gpu/slabs.h"
#include "platform/gpu/staging_ring.h"
#include "runtime/exec/gpu/regions.h"

namespace tarn::exec {

class GpuMemory final : public model::WeightSink, public kv::GroupMemory {
 public:
  GpuMemory() = default;
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() { release(); }

  // n_groups: of KV that lies on the device. `planned` are the slabs that the plan counted.
  Result<void> reserve(Device& device, const model::ModelDescription& model, const GpuSizes& sizes,
                       u32 n_groups, const SlabCutter& planned);
  void release();

  DeviceSlab largest_slab() const { return slabs_.largest(); }
  const GpuRegions& regions() const { return regions_; }

  // Returns the idx-th layer's stripe that stays on the device.
  u8* stripe(u32 idx) const;

  // Opens the way in, through the staging memory that the loader leaves; closed by release() or
  // close_staging().
  Result<void> open_staging(std::span<std::byte> staging, bool is_pinned, Clock& clock);
  void close_staging() { ring_.close(); }

  std::byte* place(u64 n_bytes) override;
  Result<std::span<std::byte>> next() override { return ring_.next(); }
  void send(std::byte* to, u64 n_bytes) override { ring_.send(DeviceBytes(to), n_bytes); }
  Result<void> finish() override { return ring_.finish(); }

  u8* group(u32 frame) override;
  void copy(u8* to, const u8* from, u64 bytes) override;

 private:
  Device* device_ = nullptr;
  DeviceSlabs slabs_{};
  SlabCutter cut_{};      // of all pieces
  SlabCutter weights_{};  // of those that the loader has asked for
  SlabOffset groups_{}, kept_{};
  GpuRegions regions_{};
  u64 group_bytes_ = 0, stripe_bytes_ = 0;
  StagingRing ring_{};
};

}  // namespace tarn::exec
