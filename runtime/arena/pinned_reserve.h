// Takes the arena's memory from the GPU's driver, where the driver cannot register our own. Copies
// to and from it do not block, and the GPU reads it at Device::pinned_address().
//
//   thread       the engine's
//   when full    the driver's error, with the arena's name
#pragma once

#include "platform/gpu/device.h"
#include "platform/mem/reserve.h"

namespace tarn {

class PinnedReserve final : public Reserve {
 public:
  void init(Device* device) { device_ = device; }
  // The memory is always locked, never in huge pages. The driver's fork rules hold.
  Result<ReserveOutcome> reserve(const ReserveArgs& args) override;
  void release(std::span<std::byte> bytes) override { device_->release_pinned(bytes); }

 private:
  Device* device_ = nullptr;
};

}  // namespace tarn
