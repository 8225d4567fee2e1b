#include "platform/gpu/discovery.h"

#include <algorithm>
#include <string_view>

namespace tarn {
namespace {

// Tegra's compute capabilities: Orin, and Thor before and since CUDA 13.
bool is_tegra(u32 compute_capability) {
  return compute_capability == 87 || compute_capability == 101 || compute_capability == 110;
}

}  // namespace

bool has_kernels_for(u32 compute_capability, std::span<const u32> archs, u32 ptx_arch) {
  if (ptx_arch != 0 && compute_capability >= ptx_arch) return true;
  return std::ranges::any_of(archs, [&](u32 arch) {
    if (arch == compute_capability) return true;
    return arch / 10 == compute_capability / 10 && arch < compute_capability && !is_tegra(arch) &&
           !is_tegra(compute_capability);
  });
}

Result<DeviceChoice> device_choose(const char* wanted, u32 gpu_idx) {
  const std::string_view name = wanted;
  if (name != "cpu" && name != "auto" && name != "cuda") {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .hint = "the device must be \"auto\", \"cpu\" or \"cuda\"",
                 .detail = Detail(name)});
  }
  DeviceChoice choice{.facts = {.kind = DeviceKind::cpu, .name = {"CPU"}}, .built = gpu_is_built()};
  if (name == "cpu") return choice;
  const Result<DeviceFacts> gpu = gpu_discover(gpu_idx);
  if (gpu) {
    choice.facts = *gpu;
  } else if (name == "auto") {
    choice.why_cpu = gpu.error().hint;
  } else {
    return fail(gpu.error());
  }
  return choice;
}

}  // namespace tarn
