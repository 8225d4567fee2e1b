// platform/cpu/topology_under.h: cpu_topology() with the root of /proc and /sys and the allowed
// CPUs as arguments, so that a test can describe other machines.
#pragma once

#include "platform/cpu/topology.h"

namespace tarn {

// `allowed` in ascending order.
CpuTopology cpu_topology_under(const char* root, std::span<const u32> allowed);

}  // namespace tarn
