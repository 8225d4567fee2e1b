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
// and the others of its major), or what its driver makes of PTX for `ptx_arch` (an equal or higher
// capability; 0: there is no PTX).
bool has_kernels_for(u32 compute_capability, std::span<const u32> archs, u32 ptx_arch);

}  // namespace tarn
