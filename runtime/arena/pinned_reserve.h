// Memory of a GPU's driver in place of the system's, where the driver cannot register the latter.
// It is always locked, and the GPU reads it at Device::pinned_address(). Its fork rules hold.
#pragma once

#include <cstring>

#include "platform/gpu/device.h"
#include "platform/mem/reserve.h"

namespace tarn {

class PinnedReserve final : public Reserve {
 public:
  void use(Device* device) { device_ = device; }

  Result<ReserveOutcome> reserve(const ReserveArgs& args) override {
    TARN_TRY(const std::span<std::byte> bytes, device_->reserve_pinned(args.name, args.bytes));
    std::memset(bytes.data(), 0, bytes.size());
    return ReserveOutcome{.bytes = bytes, .locked = true};
  }
  void release(std::span<std::byte> bytes) override { device_->release_pinned(bytes); }

 private:
  Device* device_ = nullptr;
};

}  // namespace tarn
