// The choice of the best tokens by pairs of codes. With two sub-spaces a token's scores depend only
// on its pair of codes, and there are side^2 pairs (4,096 with 6 bits). So weights and ranks are
// computed per pair, for any number of tokens; a token costs one look-up in a table of bits.
//
//   lut     [n_heads, 2, side] f32, as pq_score.h's lut gives it; side = n_padded, 16, 32 or 64
//   counts  [side, side] u32, the number of tokens with codes (c0, c1)
//   codes   2 rows, codes_stride bytes apart, in one of pq_codes.h's formats
//   out     [min(n_tokens, k)] u32, places of the chosen tokens, ascending
//
//   score   s[h](c0, c1) = (lut[h][0][c0] + lut[h][1][c1]) * scale, of pairs that have tokens
//   weigh   M = max s[h];  p = exp(s[h] - M);  Z = sum16 of the 16 sums over pairs ascending (c0
//           outside) with pair mod 16 = j of f32(count) * p; weight = sum over h ascending of
//           p * (1/Z): a softmax over tokens, summed over the group (PQCache, arXiv:2407.12820).
//           With one head the weight is s.
//   choose  the k tokens of largest weight, the lower place of equals; all where n_tokens <= k
//
// No FMA but in exp; the same choice on every ISA and for every format. n_tokens < 2^24: a count is
// an f32 exactly. A NaN has its place in the order, as in topk.h.
// Cost    side^2 exponentials a head, 32 passes over side^2 weights to find the k-th, and about one
//         operation a token; reads the codes once.
#pragma once

#include "kernels/pq/pq_codes.h"

namespace tarn::kernels {

inline constexpr u32 kPqPairSideMax = 64;
// Weights and keys.
inline constexpr u64 kPqPairScratchBytes = u64{2} * kPqPairSideMax * kPqPairSideMax * sizeof(f32);

struct PqPairsArgs {
  PqCodeFormat format;
  const u8* codes;
  u64 codes_stride;  // bytes
  const f32* lut;
  const u32* counts;
  void* scratch;  // kPqPairScratchBytes, 64-byte aligned
  u32* out;
  u32 n_tokens;
  u32 n_heads;
  u32 side;
  u32 k;
  f32 scale;
};
// Returns min(n_tokens, k).
using PqPairsFn = u32 (*)(const PqPairsArgs& args);
u32 pq_pairs_generic(const PqPairsArgs& args);
u32 pq_pairs_avx2(const PqPairsArgs& args);
u32 pq_pairs_avx512(const PqPairsArgs& args);

}  // namespace tarn::kernels
