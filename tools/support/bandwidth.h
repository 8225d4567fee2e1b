// The machine's read bandwidth, measured in the run that reports a share of it.
#pragma once

#include "platform/base/types.h"

namespace tarn::tools {

inline constexpr u64 kBandwidthBufferBytes = 512 * kMiB;  // far larger than the caches

// Bytes a second that n_threads threads read from memory: the best of several passes over a
// temporary buffer of that size. Takes about half a second.
f64 measure_read_bandwidth(u32 n_threads);

}  // namespace tarn::tools
