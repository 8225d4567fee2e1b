// The loop of pq_score.h's score that its ISAs share. It works on a tile of tokens, so that codes
// and scores stay in L1 over sub-spaces and heads. Packed codes become bytes here, in plain loops
// that the compiler turns into whole registers of the including file's ISA. Only the ISA files
// include it.
#pragma once

#include "kernels/pq/pq_score.h"

namespace tarn::kernels {
namespace {

// Returns a sub-space's codes of some tokens as bytes: in place, or unpacked into `buffer`, which
// has room for whole blocks. A row consists of whole blocks, so the last one may be read fully.
const u8* pq_bytes(PqCodeFormat format, const u8* row, u32 n_tokens, u8* buffer) {
  if (format == PqCodeFormat::bytes) return row;
  for (u32 t = 0; t < n_tokens; t += kPqBlockTokens, row += pq_block_bytes(format)) {
    u8* out = buffer + t;
    for (u32 i = 0; i < 32; ++i) {
      out[i] = static_cast<u8>(row[i] & 15u);
      out[i + 32] = static_cast<u8>(row[i] >> 4u);
    }
    if (format == PqCodeFormat::packed4) continue;
    const u8* high = row + 32;
    for (u32 i = 0; i < 16; ++i) {
      out[i] = static_cast<u8>(out[i] | (high[i] & 0x03u) << 4u);
      out[i + 16] = static_cast<u8>(out[i + 16] | (high[i] & 0x0cu) << 2u);
      out[i + 32] = static_cast<u8>(out[i + 32] | (high[i] & 0x30u));
      out[i + 48] = static_cast<u8>(out[i + 48] | (high[i] & 0xc0u) >> 2u);
    }
  }
  return buffer;
}

struct PqTile {
  u32 n_tokens;
  bool is_first, is_last;  // among the sub-spaces
  f32 scale;
};

// Calls add(codes, lut, tile, scores) for each tile, sub-space and head.
template <class Add>
void pq_for_tiles(const PqScoreArgs& args, Add add) {
  constexpr u32 kTileTokens = 1024;
  u8 buffer[kTileTokens];
  for (u32 begin = 0; begin < args.n_tokens; begin += kTileTokens) {
    const u32 left = args.n_tokens - begin;
    const u32 n_tokens = left < kTileTokens ? left : kTileTokens;
    const u64 codes_begin = u64{begin / kPqBlockTokens} * pq_block_bytes(args.format);
    for (u32 m = 0; m < args.n_subspaces; ++m) {
      const u8* row = args.codes + m * args.codes_stride + codes_begin;
      const u8* codes = pq_bytes(args.format, row, n_tokens, buffer);
      const PqTile tile = {n_tokens, m == 0, m + 1 == args.n_subspaces, args.scale};
      for (u32 h = 0; h < args.n_heads; ++h) {
        const f32* lut = args.lut + (u64{h} * args.n_subspaces + m) * args.n_padded;
        add(codes, lut, tile, args.scores + h * args.scores_stride + begin);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels
