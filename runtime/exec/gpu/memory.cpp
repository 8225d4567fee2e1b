#include "runtime/exec/gpu/memory.h"

#include <array>

#include "platform/base/assert.h"
#include "runtime/exec/gpu/args.h"

namespace tarn::exec {

namespace {

// In the plan's order.
template <class Fn>
void each(GpuRegions& regions, Fn&& fn) {
  fn(regions.step);
  fn(regions.attention);
  fn(regions.logits);
  fn(regions.indexes);
  fn(regions.select);
}

}  // namespace

Result<void> GpuMemory::reserve(Device& device, const model::ModelDescription& model,
                                const GpuSizes& sizes, u32 n_groups, const SlabCutter& planned) {
  TARN_ASSERT(device_ == nullptr);
  const model::ModelSpec& spec = model.spec;
  cut_ = SlabCutter(device.facts());
  weights_ = SlabCutter(device.facts());
  group_bytes_ = sizes.group.group_bytes();
  stripe_bytes_ = sizes.stripe_bytes();
  model::each_weight_piece(
      model, [](void* cut, Checked bytes) { static_cast<SlabCutter*>(cut)->add(bytes); }, &cut_);
  if (n_groups > 0) groups_ = cut_.add(group_bytes_, n_groups);
  std::array<SlabOffset, 5> offsets{};
  std::array<u64, 5> bytes{};
  u32 n = 0;
  each(regions_, [&](auto& region) {
    Carver counter;
    region.carve(counter, spec, sizes);
    bytes[n] = *counter.n_bytes().get();
    if (bytes[n] > 0) offsets[n] = cut_.add(bytes[n]);
    ++n;
  });
  const u64 n_stripes = u64{sizes.n_stripes} * spec.n_cache_layers;
  if (n_stripes > 0) kept_ = cut_.add(stripe_bytes_, n_stripes);
  TARN_ASSERT(cut_.total_bytes().get() == planned.total_bytes().get());
  TARN_CHECK(slabs_.reserve(device, cut_));
  device_ = &device;
  n = 0;
  each(regions_, [&](auto& region) {
    std::byte* const at = bytes[n] > 0 ? slabs_.at(offsets[n]).raw() : nullptr;
    Carver placer({at, bytes[n]});
    region = region.carve(placer, spec, sizes);
    ++n;
  });
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

u8* GpuMemory::stripe(u32 idx) const {
  return slabs_.at(cut_.of_run(kept_, stripe_bytes_, idx)).as<u8>().raw();
}

void GpuMemory::copy(u8* to, const u8* from, u64 bytes) {
  auto* source = const_cast<u8*>(from);  // addresses on the device have no const
  device_->copy(DevicePtr<u8>(to).as<std::byte>(), DevicePtr<u8>(source).as<std::byte>(), bytes,
                device_->stream(StreamId::compute));
}

}  // namespace tarn::exec
