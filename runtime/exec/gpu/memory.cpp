#include "runtime/exec/gpu/memory.h"

#include "platform/base/assert.h"
#include "runtime/exec/gpu/gpu_backend.h"

namespace tarn::exec {

using plan::RegionId;

Result<void> GpuMemory::reserve(Device& device, const model::ModelDescription& model,
                                const plan::Plan& plan) {
  TARN_ASSERT(device_ == nullptr);
  cut_ = SlabCutter(device.facts());
  weights_ = SlabCutter(device.facts());
  group_bytes_ = plan.group_shape.group_bytes();
  model::each_weight_piece(
      model, [](void* cut, Checked bytes) { static_cast<SlabCutter*>(cut)->add(bytes); }, &cut_);
  if (!plan.tiers.is_on()) groups_ = cut_.add(group_bytes_, plan.groups_max);
  activations_ = cut_.add(plan.of(RegionId::activations).bytes);
  attention_ = cut_.add(plan.of(RegionId::attention).bytes);
  logits_ = cut_.add(plan.of(RegionId::logits).bytes);
  const auto add_if_any = [&](RegionId id) {
    const u64 bytes = plan.of(id).bytes;
    return bytes > 0 ? cut_.add(bytes) : SlabPlace{};
  };
  select_device_ = add_if_any(RegionId::select_device);
  select_gather_ = add_if_any(RegionId::select_gather);
  const u64 n_kept = u64{plan.gpu_stream.n_kept} * plan.gpu_stream.kept.n_cache_layers;
  chunk_bytes_ = plan.gpu_stream.staged_bytes;
  if (n_kept > 0) kept_ = cut_.add(chunk_bytes_, n_kept);
  TARN_ASSERT(cut_.total_bytes().get() == plan.slabs.total_bytes().get());
  TARN_CHECK(slabs_.reserve(device, cut_));
  device_ = &device;
  return {};
}

void GpuMemory::release() {
  ring_.close();
  slabs_.release();
  device_ = nullptr;
}

Result<void> GpuMemory::open_staging(std::span<std::byte> staging, bool is_pinned, Clock& clock) {
  const std::span<std::byte> memory = model::sink_staging(staging);
  TARN_ASSERT(memory.size() == kStagingPieces * model::sink_piece_bytes());
  return ring_.open({.device = device_,
                     .clock = &clock,
                     .memory = memory,
                     .is_pinned = is_pinned,
                     .wait_ns_max = kGpuWaitNsMax});
}

std::byte* GpuMemory::place(u64 n_bytes) { return slabs_.at(weights_.add(n_bytes)).raw(); }

u8* GpuMemory::group(u32 frame) {
  return slabs_.at(cut_.of_run(groups_, group_bytes_, frame)).as<u8>().raw();
}

u8* GpuMemory::kept_chunk(u32 idx) const {
  return slabs_.at(cut_.of_run(kept_, chunk_bytes_, idx)).as<u8>().raw();
}

void GpuMemory::copy(u8* to, const u8* from, u64 bytes) {
  auto* source = const_cast<u8*>(from);  // addresses on the device have no const
  device_->copy(DevicePtr<u8>(to).as<std::byte>(), DevicePtr<u8>(source).as<std::byte>(), bytes,
                device_->stream(StreamId::compute));
}

}  // namespace tarn::exec
