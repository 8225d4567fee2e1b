// platform/cpu/crc32c.h
//
// CRC32C (Castagnoli's polynomial, as iSCSI has it, RFC 3720 B.4): what every sector on disk is
// checked with. One mechanism: a table of ways to compute it, best first, of which the last is
// portable; the owner picks once and passes it on. All give the same values.
//
//   bytes     of any run, any alignment
//   sectors   of each kCrcSectorBytes by themselves: four chains side by side, which hides that one
//             step of a chain waits three cycles for the step before
//
// Cost on one core of an AMD EPYC with AVX-512 (2026-11, 256 KiB in cache, best of 200):
// instructions 43 GB/s by sectors and 11 by bytes, portable 2.2. A disk of 7 GB/s costs a sixth of
// a core; a machine without the instructions reads at 2.2 GB/s at most.
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn {

inline constexpr u64 kCrcSectorBytes = 4096;

struct Crc32c {
  const char* name;
  u32 (*bytes)(const std::byte* data, u64 n_bytes);
  void (*sectors)(const std::byte* data, u64 n_sectors, u32* crcs);
};

// Those that run here, best first.
std::span<const Crc32c> crc32c_ways();

}  // namespace tarn
