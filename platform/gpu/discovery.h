// Questions of device_choose() to the linked backend, and the rule which cubin runs on which GPU.
#pragma once

#include <span>

#include "platform/gpu/device.h"

namespace tarn {

// The facts of a GPU that this build can use, without making a context on it. Status::unsupported
// with the reason where there is no such GPU.
Result<DeviceFacts> gpu_discover(u32 gpu_idx);
bool gpu_is_built();

// Whether a GPU of this compute capability runs a cubin of one of `archs`, or PTX for `ptx_arch`
// (0: there is no PTX). A cubin needs the same major and an equal or higher minor, and never mixes
// Tegra with the others of its major. PTX needs an equal or higher capability. (CUDA C++
// Programming Guide, "Binary Compatibility".)
bool has_kernels_for(u32 compute_capability, std::span<const u32> archs, u32 ptx_arch);

}  // namespace tarn
