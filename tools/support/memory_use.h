// tools/support/memory_use.h
//
// What the kernel counts of this process, for the figures that our programs print.
#pragma once

#include "platform/base/types.h"

namespace tarn::tools {

// The most memory that was ever resident, since the start or the last reset.
u64 peak_rss_bytes();
// Begins anew with what is resident now. Without effect where the kernel keeps no such figure.
void reset_peak_rss();

}  // namespace tarn::tools
