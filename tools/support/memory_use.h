// The kernel's figures of this process' memory, for our programs' reports.
#pragma once

#include "platform/base/types.h"

namespace tarn::tools {

// The largest resident memory since the start or the last reset.
u64 peak_rss_bytes();
// Restarts from the memory that is resident now. No effect if the kernel has no such figure.
void reset_peak_rss();

}  // namespace tarn::tools
