// The system's GPU, lent to an engine.
#include <array>
#include <string_view>

#include "platform/base/assert.h"
#include "runtime/engine/open_args.h"
#include "runtime/exec/built_kernels.h"

namespace tarn::engine {

DeviceOpenArgs device_open_args(const Config& config) {
  return {.gpu_idx = config.device_index,
          .compute_priority = -static_cast<i32>(config.device_priority)};
}

Result<void> SystemGpu::open(OpenArgs* args) {
  TARN_ASSERT(device_ == nullptr);
  const kernels::GpuTable* gpu_kernels = exec::built_gpu_kernels();
  if (args->device != nullptr || gpu_kernels == nullptr) return {};
  TARN_TRY(const DeviceChoice choice,
           device_choose(args->config.device.data(), args->config.device_index));
  if (choice.facts.kind == DeviceKind::cpu) return {};
  const Result<Device*> opened = system_device_open(memory_, device_open_args(args->config));
  if (!opened && std::string_view(args->config.device.data()) == "auto") {
    std::array<char, 256> why{};
    format_error(opened.error(), why.data(), why.size());
    args->log.warning("runs on the CPU: %s", why.data());
    args->config.device = {"cpu"};
    return {};
  }
  if (!opened) return fail(opened.error());
  device_ = *opened;
  args->device = device_;
  args->gpu_kernels = gpu_kernels;
  return {};
}

void SystemGpu::close() {
  if (device_ != nullptr) system_device_close(device_);
  device_ = nullptr;
}

}  // namespace tarn::engine
