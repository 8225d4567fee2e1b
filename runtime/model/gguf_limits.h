// The only table of the GGUF reader's limits, with their reasons. A file beyond a limit is refused,
// and the error has the limit, so that a real file that needs more is recognised.
#pragma once

#include "platform/base/types.h"

namespace tarn::model {

struct GgufLimits {
  // Real files have 20 to 60 keys.
  static constexpr u64 kKeysMax = 4096;
  // 512 layers of 12 tensors are 6 K; the largest sharded MoE files hold 3 K.
  static constexpr u64 kTensorsMax = 16384;
  // The format allows 65,535; the longest name in use has 55.
  static constexpr u64 kKeyNameBytesMax = 256;
  // The format's own limit.
  static constexpr u64 kTensorNameBytesMax = 64;
  // Keys, arrays and the tensor table together. The largest vocabulary in use (262 K tokens with
  // their merges) has 16 MiB, and reading 32 MiB stays within the time limit of a refusal (100 ms).
  static constexpr u64 kDirectoryBytesMax = 32 * kMiB;
  // The largest vocabulary has 0.3 M tokens and 0.5 M merges.
  static constexpr u64 kArrayElementsMax = u64{4} * 1024 * 1024;
  // A single string value: the largest chat templates have 30 KiB, a licence text 40 KiB.
  static constexpr u64 kStringBytesMax = kMiB;
  // A string in an array must fit into the window below; the longest tokens are some hundred
  // spaces.
  static constexpr u64 kArrayStringBytesMax = 64 * kKiB;
  // Alignment of the tensors' data. The format demands a multiple of 8; above 1 MiB a file could
  // claim space by padding.
  static constexpr u64 kAlignmentMin = 8;
  static constexpr u64 kAlignmentMax = kMiB;
  static constexpr u64 kAlignmentDefault = 32;  // the format's
  static constexpr u32 kDimsMax = 4;            // the format's
  // Elements of one tensor: products of valid dimensions stay far below 2^64, counters fit an i64.
  static constexpr u64 kElementsMax = u64{1} << 42;
  // The window through which the directory is read: room for several strings, and an efficient size
  // of a disk's read.
  static constexpr u64 kWindowBytes = 256 * kKiB;
};

// The most that GgufFile::read() takes from its Bump, also for a refused file. Each key needs its
// entry, its terminated name and its place in the index. Each tensor needs the same, and a place in
// the order of offsets during the check.
inline constexpr u64 kGgufMemoryBytesMax =
    GgufLimits::kWindowBytes + 4 * kKiB +
    GgufLimits::kKeysMax * (64 + GgufLimits::kKeyNameBytesMax + 1 + 4) +
    GgufLimits::kTensorsMax * (88 + GgufLimits::kTensorNameBytesMax + 1 + 4 + 4) + 4 * kKiB;
static_assert(kGgufMemoryBytesMax <= 16 * kMiB);

}  // namespace tarn::model
