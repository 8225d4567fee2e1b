// tools/tarn-bench/bandwidth.h
//
// The machine's read bandwidth, measured in the same run that quotes a share of it.
#pragma once

#include "platform/base/types.h"

namespace tarn::bench {

// Bytes a second that n_threads threads read from memory: the best of several passes over a buffer
// far larger than the caches. Takes about half a second.
f64 measure_read_bandwidth(u32 n_threads);

}  // namespace tarn::bench
