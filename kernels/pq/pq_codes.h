// The layout of a sub-space's codes in memory: a row per sub-space, in blocks of 64 tokens, so that
// neighbouring lanes read neighbouring tokens. A row has room for a whole number of blocks. There
// are 2^b centroids, b = 1..8.
//
//   bytes     one code a byte
//   packed4   32 bytes a block: byte i holds token i in its low half, token i + 32 in its high half
//   packed6   48 bytes a block: the low 4 bits of each code as in packed4, then 16 bytes: byte i
//             holds the high 2 bits of tokens i, i + 16, i + 32, i + 48, lowest bits first
//
// A token's code is the same in every format, so scores and choices are too. Unpacking is shifts
// and masks of whole registers: no format needs a byte permutation.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

enum class PqCodeFormat : u8 { bytes, packed4, packed6 };

inline constexpr u32 kPqBlockTokens = 64;
inline constexpr u32 kPqSubspacesMax = 64;
inline constexpr u32 kPqCentroidsMax = 256;  // a code is one byte
inline constexpr u32 kPqLanes = 16;          // rows of centroids and of look-up tables are padded

constexpr u32 pq_padded(u32 n_centroids) {
  return (n_centroids + kPqLanes - 1) / kPqLanes * kPqLanes;
}
constexpr u32 pq_block_bytes(PqCodeFormat format) {
  return format == PqCodeFormat::bytes ? 64 : format == PqCodeFormat::packed4 ? 32 : 48;
}
constexpr u64 pq_row_bytes(PqCodeFormat format, u64 n_tokens) {
  return (n_tokens + kPqBlockTokens - 1) / kPqBlockTokens * pq_block_bytes(format);
}
// The most bits of a code in a format.
constexpr u32 pq_bits_max(PqCodeFormat format) {
  return format == PqCodeFormat::bytes ? 8 : format == PqCodeFormat::packed4 ? 4 : 6;
}
constexpr PqCodeFormat pq_least_format(u32 code_bits) {
  return code_bits <= pq_bits_max(PqCodeFormat::packed4)   ? PqCodeFormat::packed4
         : code_bits <= pq_bits_max(PqCodeFormat::packed6) ? PqCodeFormat::packed6
                                                           : PqCodeFormat::bytes;
}

// Writes one token's code; other codes of the row stay as they are.
void pq_code_put(PqCodeFormat format, u8* row, u64 token, u8 code);
u8 pq_code_get(PqCodeFormat format, const u8* row, u64 token);

}  // namespace tarn::kernels
