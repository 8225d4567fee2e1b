// Identifies this process: a child of fork() has its parent's memory, but none of its threads.
#pragma once

#include "platform/base/types.h"

namespace tarn {

u64 process_id();

}  // namespace tarn
