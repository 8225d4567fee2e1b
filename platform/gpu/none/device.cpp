// platform/gpu/none/device.cpp: the build without a GPU. It answers every question and never fails
// a caller that did not insist on one.
#include "platform/gpu/device.h"

#include <string_view>

namespace tarn {
namespace {
constexpr const char* kNoGpu =
    "this build has no GPU backend: configure with -DTARN_CUDA=ON, or choose the device \"cpu\"";
}

Result<DeviceChoice> device_choose(const char* wanted) {
  const std::string_view name = wanted;
  if (name == "cuda") return fail({.status = Status::unsupported, .hint = kNoGpu});
  if (name != "cpu" && name != "auto") {
    return fail({.status = Status::invalid_config,
                 .hint = "the device must be \"auto\", \"cpu\" or \"cuda\"",
                 .detail = Detail(name)});
  }
  DeviceChoice choice{.facts = {.kind = DeviceKind::cpu, .name = {"CPU"}}};
  if (name == "auto") choice.why_cpu = kNoGpu;
  return choice;
}

}  // namespace tarn
