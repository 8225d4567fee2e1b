// Which numerics made KV: a part of its identity, as KV of other bits is no session's of ours.
#pragma once

#include "platform/base/types.h"

namespace tarn::kv {

// Raised when kernels give other bits than before: all ISAs of a CPU give the same, and so do all
// GPUs, whose order of sums is another one.
inline constexpr u32 kCpuNumericsId = 4;
inline constexpr u32 kGpuNumericsId = 0x1004;

}  // namespace tarn::kv
