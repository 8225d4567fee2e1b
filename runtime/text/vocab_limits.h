// The only table of a vocabulary's limits, with their reasons. GGUF's own limits apply first.
#pragma once

#include "platform/base/types.h"

namespace tarn::text {

struct VocabLimits {
  // The largest in use have 0.26 M tokens and 0.51 M merges.
  static constexpr u64 kTokensMax = u64{2} * 1024 * 1024;
  static constexpr u64 kMergesMax = u64{4} * 1024 * 1024;
  // The longest tokens in use are 512 spaces, 1 KiB as byte-level BPE stores them. The limit bounds
  // the bytes that one look-up hashes, and so the time for hostile text and vocabulary.
  static constexpr u64 kTokenBytesMax = u64{4} * 1024;
  // The largest distance of a table entry from its place. At half load a natural vocabulary stays
  // below 40 (256 has odds under 1e-15), so a vocabulary beyond it was made to collide.
  static constexpr u32 kProbesMax = 256;
  // Positions in prepared text, up to three bytes for one of the text, are 32-bit numbers.
  static constexpr u64 kTextBytesMax = u64{1} << 30;
};

}  // namespace tarn::text
