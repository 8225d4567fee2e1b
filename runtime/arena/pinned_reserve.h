// runtime/arena/pinned_reserve.h
//
// The arena's memory from the GPU's driver, where the driver makes no memory of ours reachable.
// Copies to and from it do not block, and the GPU reads it by Device::pinned_address().
//
//   thread       the engine's
//   when full    the driver's error, which names the arena
#pragma once

#include "platform/gpu/device.h"
#include "platform/mem/reserve.h"

namespace tarn {

class PinnedReserve final : public Reserve {
 public:
  void init(Device* device) { device_ = device; }
  // Locked by nature, never in huge pages. The driver's fork rules hold.
  Result<ReserveOutcome> reserve(const ReserveArgs& args) override;
  void release(std::span<std::byte> bytes) override { device_->release_pinned(bytes); }

 private:
  Device* device_ = nullptr;
};

}  // namespace tarn
