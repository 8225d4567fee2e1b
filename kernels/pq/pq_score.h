// Attention scores from codes, for the q heads that share one KV head: a look-up per sub-space
// replaces the dot product with the whole key.
//
//   q          [n_heads, q_stride] f32, after RoPE; sub-space m at m * dims
//   codebook   [n_subspaces, dims, n_padded] f32, centroids as in pq_cluster.h
//   lut        [n_heads, n_subspaces, n_padded] f32
//   codes      [n_subspaces] rows, codes_stride bytes apart, in one of pq_codes.h's formats
//   scores     [n_heads, scores_stride] f32
//   weights    [n_tokens] f32, of the group: they rank the KV head's tokens
//
//   lut      lut[h][m][c] = sum over i ascending from 0 of fma(q[h][m*dims + i],
//            codebook[m][i][c], sum)
//   score    scores[h][t] = (lut[h][0][code 0 of t] + ... ascending m) * scale
//   weigh    per head h, over the n_tokens scores s:
//              M = max s;  p[t] = exp(s[t] - M);
//              Z = sum16 of the 16 sums over t ascending with t mod 16 = j of p[t]
//            weights[t] = p_0[t]*(1/Z_0) + p_1[t]*(1/Z_1) + ... ascending h; s is replaced by p.
//            Softmax before the sum over the group, as in PQCache's code (arXiv:2407.12820).
//            With one head the order by score is the same, and distinguishes tokens that exp
//            flushes to 0.
//
// The same bits on every ISA and for every format; a token's score depends only on its
// codes, so slices (of whole blocks in a packed format) give the bits of one call. A NaN score
// makes the group's weights NaN. Nothing aliases.
// Bound  lut: dims * eps * sum|q*c|.  score: (n_subspaces + 1) * eps * sum|lut| * scale.
//        weigh: relative (57 + n_tokens/16 + n_heads) * eps, mostly from rounding s - M, which may
//        be 88 before exp is 0; absolute n_heads * 2^-126 below that. eps = 2^-23
// Cost   lut: reads the codebook once for all heads. score: reads the codes once, pq_row_bytes of
//        each sub-space, and writes 4 bytes a token and head; a table of 64 centroids is 4
//        registers of AVX-512. weigh: reads and writes the scores three times in L2, one
//        exponential each.
#pragma once

#include "kernels/pq/pq_codes.h"

namespace tarn::kernels {

struct PqLutArgs {
  const f32* q;
  u64 q_stride;  // elements
  const f32* codebook;
  f32* lut;
  u32 n_heads;
  u32 n_subspaces;
  u32 dims;  // of a sub-space
  u32 n_padded;
};
using PqLutFn = void (*)(const PqLutArgs& args);
void pq_lut_generic(const PqLutArgs& args);
void pq_lut_avx2(const PqLutArgs& args);
void pq_lut_avx512(const PqLutArgs& args);

struct PqScoreArgs {
  PqCodeFormat format;
  const u8* codes;
  u64 codes_stride;  // bytes
  const f32* lut;
  f32* scores;
  u64 scores_stride;  // elements
  u32 n_tokens;
  u32 n_heads;
  u32 n_subspaces;
  u32 n_padded;
  f32 scale;
};
using PqScoreFn = void (*)(const PqScoreArgs& args);
void pq_score_generic(const PqScoreArgs& args);
void pq_score_avx2(const PqScoreArgs& args);
void pq_score_avx512(const PqScoreArgs& args);

struct PqWeighArgs {
  f32* scores;  // in; out: p
  u64 scores_stride;
  f32* weights;
  u32 n_tokens;
  u32 n_heads;
};
using PqWeighFn = void (*)(const PqWeighArgs& args);
void pq_weigh_generic(const PqWeighArgs& args);
void pq_weigh_avx2(const PqWeighArgs& args);
void pq_weigh_avx512(const PqWeighArgs& args);

}  // namespace tarn::kernels
