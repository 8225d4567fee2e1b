// CRC32C (Castagnoli's polynomial, as in iSCSI, RFC 3720 B.4), the checksum of every sector on
// disk. There is a table of implementations, best first; the last one is portable. The owner picks
// one once and passes it on. All give the same values.
//
//   bytes     any number of bytes, any alignment
//   sectors   one checksum for each kCrcSectorBytes: four chains side by side hide the latency of
//             the instruction, three cycles
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

// The implementations that this machine runs, best first.
std::span<const Crc32c> crc32c_ways();

}  // namespace tarn
