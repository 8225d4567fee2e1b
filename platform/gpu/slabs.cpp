#include "platform/gpu/slabs.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/gpu/gpu_errors.h"

namespace tarn {

Result<void> check_headroom(const DeviceFacts& facts, const char* name, u64 bytes, u64 free_bytes) {
  if (bytes <= free_bytes && free_bytes - bytes >= facts.headroom_bytes) return {};
  Error error = gpu_error(kGpuOutOfMemory, name);
  error.figures = {
      {{"bytes", bytes}, {"free_bytes", free_bytes}, {"headroom_bytes", facts.headroom_bytes}}};
  return fail(error);
}

SlabOffset SlabCutter::add(Checked bytes) {
  TARN_ASSERT(slab_bytes_max_ > 0);
  const auto piece_bytes = bytes.aligned_up(kDevicePieceAlignment).get();
  if (!piece_bytes || !valid_) {
    valid_ = false;
    return {};
  }
  const bool fits = n_slabs_ > 0 && *piece_bytes <= slab_bytes_max_ &&
                    filled_bytes_[n_slabs_ - 1] <= slab_bytes_max_ - *piece_bytes;
  if (!fits) {
    if (n_slabs_ == kDeviceSlabsMax) {
      valid_ = false;
      return {};
    }
    filled_bytes_[n_slabs_++] = 0;
  }
  const SlabOffset at{n_slabs_ - 1, filled_bytes_[n_slabs_ - 1]};
  filled_bytes_[at.slab_idx] += *piece_bytes;
  return at;
}

SlabOffset SlabCutter::add(Checked bytes, u64 n) {
  if (n == 0) return {};
  const SlabOffset first = add(bytes);
  const u64 piece_bytes = bytes.aligned_up(kDevicePieceAlignment).get().value_or(0);
  if (piece_bytes == 0) return first;
  u64 left = n - 1;
  while (left > 0 && valid_) {
    // First the pieces that still fit into the last slab, then the pieces of the next slabs.
    u64& filled_bytes = filled_bytes_[n_slabs_ - 1];
    const u64 room_bytes = slab_bytes_max_ > filled_bytes ? slab_bytes_max_ - filled_bytes : 0;
    const u64 n_here = std::min(left, room_bytes / piece_bytes);
    filled_bytes += n_here * piece_bytes;
    left -= n_here;
    if (left > 0) {
      add(bytes);
      --left;
    }
  }
  return first;
}

SlabOffset SlabCutter::of_run(SlabOffset first, u64 piece_bytes, u64 idx) const {
  const u64 step_bytes = align_up(piece_bytes, kDevicePieceAlignment);
  TARN_ASSERT(step_bytes > 0);
  const u64 room_bytes =
      slab_bytes_max_ > first.offset_bytes ? slab_bytes_max_ - first.offset_bytes : 0;
  const u64 n_first = std::max<u64>(1, room_bytes / step_bytes);
  if (idx < n_first) return {first.slab_idx, first.offset_bytes + idx * step_bytes};
  const u64 n_whole = std::max<u64>(1, slab_bytes_max_ / step_bytes);
  return {first.slab_idx + 1 + static_cast<u32>((idx - n_first) / n_whole),
          (idx - n_first) % n_whole * step_bytes};
}

u64 SlabCutter::slab_bytes(u32 slab_idx) const {
  TARN_ASSERT(slab_idx < n_slabs_);
  return Checked(filled_bytes_[slab_idx]).aligned_up(alignment_bytes_).get().value_or(0);
}

Checked SlabCutter::total_bytes() const {
  Checked total = valid_ ? Checked(0) : Checked(~u64{0}) + 1;
  for (u32 i = 0; i < n_slabs_; ++i) {
    total = total + Checked(filled_bytes_[i]).aligned_up(alignment_bytes_);
  }
  return total;
}

Result<void> DeviceSlabs::reserve(Device& device, const SlabCutter& cut) {
  TARN_ASSERT(device_ == nullptr);
  TARN_ASSERT(cut.valid());
  device_ = &device;
  for (u32 i = 0; i < cut.n_slabs(); ++i) {
    const Result<DeviceSlab> slab = device.reserve("a slab of device memory", cut.slab_bytes(i));
    if (!slab) {
      release();
      return fail(slab.error());
    }
    slabs_[n_slabs_++] = *slab;
  }
  return {};
}

void DeviceSlabs::release() {
  while (n_slabs_ > 0) device_->release(slabs_[--n_slabs_]);
  device_ = nullptr;
}

DeviceBytes DeviceSlabs::at(SlabOffset at) const {
  TARN_ASSERT(at.slab_idx < n_slabs_);
  TARN_ASSERT(at.offset_bytes < slabs_[at.slab_idx].bytes);
  return slabs_[at.slab_idx].begin + at.offset_bytes;
}

u64 DeviceSlabs::total_bytes() const {
  u64 total = 0;
  for (u32 i = 0; i < n_slabs_; ++i) total += slabs_[i].bytes;
  return total;
}

DeviceSlab DeviceSlabs::largest() const {
  DeviceSlab largest{};
  for (u32 i = 0; i < n_slabs_; ++i) {
    if (slabs_[i].bytes > largest.bytes) largest = slabs_[i];
  }
  return largest;
}

}  // namespace tarn
