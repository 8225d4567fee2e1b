// How fast a folder's disk reads: random places of a file, by direct I/O, many reads under way, as
// KV is read (runtime/kv/mover.h).
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"
#include "platform/io/io_backend.h"

namespace tarn::tools {

struct DiskReads {
  u64 bytes = 0;    // of one read
  f64 seconds = 0;  // that each takes, with 32 under way
  f64 bytes_per_s() const { return static_cast<f64>(bytes) / seconds; }
};

inline constexpr const char* kScratchName = "tarn-calibrate.tmp";

// Writes a file of that name and of file_bytes, which is gone afterwards, and reads it in blocks of
// 4 KiB to 4 MiB, each for seconds_each. Throws Failure: no such folder, no space, memory and no
// disk.
std::vector<DiskReads> measure_disk(const std::string& folder, IoKind kind, u64 file_bytes,
                                    f64 seconds_each);

}  // namespace tarn::tools
