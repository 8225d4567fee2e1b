// platform/gpu/discovery.h
//
// What device_choose() asks of the backend that is linked, and which cubin serves which GPU.
#pragma once

#include <span>

#include "platform/gpu/device.h"

namespace tarn {

// The facts of a GPU that this build can use, without making a context on it. Status::unsupported
// and the reason where there is none.
Result<DeviceFacts> gpu_discover(u32 gpu_idx);
bool gpu_is_built();

// Whether a GPU of this compute capability runs a cubin of one of `archs` (CUDA C++ Programming
// Guide, "Binary Compatibility": the same major, an equal or higher minor; never between a Tegra
// and the others of its major).
bool has_cubin_for(u32 compute_capability, std::span<const u32> archs);

}  // namespace tarn
