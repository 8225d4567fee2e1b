// How many descriptors the daemon needs, and the process' limit on them. A connection takes one, so
// daemon.connections_max keeps the rest free for files, io_uring, the GPU's driver and listeners.
#pragma once

#include "platform/base/types.h"

namespace tarn::daemon {

// Beside connections: 14 are in use with a store, 60 with a GPU's driver.
inline constexpr u64 kDescriptorsBeside = 128;
inline u64 descriptors_needed(u32 connections_max) { return connections_max + kDescriptorsBeside; }

// Raises the soft limit to what is needed. Throws Failure with exit code 78 where the hard limit is
// lower.
void raise_descriptor_limit(u32 connections_max);

}  // namespace tarn::daemon
