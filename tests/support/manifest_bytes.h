// Changes a saved session's bytes like a forger.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "platform/base/assert.h"
#include "platform/cpu/crc32c.h"

namespace tarn::test {

inline constexpr u64 kManifestHeadBytes = 320;
inline constexpr u64 kManifestCrcAt = 12;

// Repairs the checksum: over the head with its field as zero, then the checksum of the rest.
inline void mend_manifest(const Crc32c& crc, std::span<std::byte> bytes) {
  TARN_ASSERT(bytes.size() >= kManifestHeadBytes);
  const auto rest = bytes.subspan(kManifestHeadBytes);
  const u32 zero = 0, rest_crc = crc.bytes(rest.data(), rest.size());
  std::memcpy(bytes.data() + kManifestCrcAt, &zero, sizeof zero);
  std::vector<std::byte> both(bytes.begin(), bytes.begin() + kManifestHeadBytes);
  both.resize(kManifestHeadBytes + sizeof rest_crc);
  std::memcpy(both.data() + kManifestHeadBytes, &rest_crc, sizeof rest_crc);
  const u32 value = crc.bytes(both.data(), both.size());
  std::memcpy(bytes.data() + kManifestCrcAt, &value, sizeof value);
}

}  // namespace tarn::test
