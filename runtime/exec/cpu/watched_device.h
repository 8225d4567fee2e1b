// A device that a CPU's engine is lent without kernels: its errors are the steps'
// (OpenArgs::device). Where none is lent nothing fails.
#pragma once

#include "platform/gpu/device.h"

namespace tarn::exec {

class WatchedDevice {
 public:
  WatchedDevice() = default;
  explicit WatchedDevice(Device* device) : device_(device) {}
  Result<void> bind_thread() const {
    return ask([](Device& device) { return device.bind_thread(); });
  }
  Result<void> check() const {
    return ask([](Device& device) { return device.check(); });
  }
  void give_up() const {
    (void)ask([](Device& device) -> Result<void> {
      device.give_up();
      return {};
    });
  }

 private:
  template <class Call>
  Result<void> ask(Call&& call) const {
    return device_ != nullptr ? call(*device_) : Result<void>{};
  }

  Device* device_ = nullptr;
};

}  // namespace tarn::exec
