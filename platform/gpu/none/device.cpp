// platform/gpu/none/device.cpp: the build without a GPU. A caller fails only if it demands a GPU.
#include "platform/gpu/discovery.h"

namespace tarn {
namespace {

Unexpected no_gpu() {
  return fail({.status = Status::unsupported,
               .hint =
                   "this build has no GPU backend: configure with -DTARN_CUDA=ON, or choose the "
                   "device \"cpu\""});
}

}  // namespace

bool gpu_is_built() { return false; }
Result<DeviceFacts> gpu_discover(u32) { return no_gpu(); }
Result<Device*> system_device_open(SystemDeviceMemory&, const DeviceOpenArgs&) { return no_gpu(); }
void system_device_close(Device*) {}

}  // namespace tarn
