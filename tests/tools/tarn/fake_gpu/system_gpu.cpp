// What platform/gpu/none and runtime/exec/none say in a build without CUDA, said otherwise: this
// machine has one GPU, the fake device with the emulated kernels. In their place in the program
// `tarn_fake_gpu`, which is `tarn` in all else. Two variables of the environment:
//
//   TARN_TEST_GPU_FAILS=N      the N-th call to the GPU and all behind it are an illegal address
//   TARN_TEST_GPU_CALLS=FILE   where the number of calls goes in the end
#include <cstdlib>
#include <fstream>
#include <string>

#include "platform/gpu/discovery.h"
#include "runtime/exec/built_kernels.h"
#include "tests/support/fake_device.h"

namespace tarn {
namespace {

DeviceFacts facts() {
  DeviceFacts facts = test::kOrinFacts;
  facts.memory_bytes = facts.memory_free_bytes = 4 * kGiB;  // the host's, only as it is reserved
  return facts;
}

}  // namespace

bool gpu_is_built() { return true; }

Result<DeviceFacts> gpu_discover(u32) { return facts(); }

Result<Device*> system_device_open(SystemDeviceMemory&, const DeviceOpenArgs&) {
  auto* device = new test::FakeDevice(facts());
  const char* call = std::getenv("TARN_TEST_GPU_FAILS");
  if (call != nullptr) {
    device->fail_at({.call = std::stoull(call), .code = kGpuIllegalAddress, .for_ever = true});
  }
  return device;
}

void system_device_close(Device* device) {
  auto* fake = static_cast<test::FakeDevice*>(device);
  const char* path = std::getenv("TARN_TEST_GPU_CALLS");
  if (path != nullptr) std::ofstream(path) << fake->n_calls();
  delete fake;
}

namespace exec {

const kernels::GpuTable* built_gpu_kernels() { return &kernels::gpu_table_emulated(); }

}  // namespace exec
}  // namespace tarn
