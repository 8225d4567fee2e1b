// memory_available_bytes() with the root of /proc and /sys as an argument, so that a test can use
// the files of another machine. The limits of this process (RLIMIT_*) are always the real ones.
#pragma once

#include "platform/base/types.h"

namespace tarn {

// `root` is "" for the real system, else a folder that holds proc/ and sys/. At most 512 bytes
// long.
u64 memory_available_under(const char* root);

// The same without RLIMIT_*: the bytes of existing mappings that may still be touched. (RLIMIT_*
// count a mapping when it is made.)
u64 pages_available_under(const char* root);

}  // namespace tarn
