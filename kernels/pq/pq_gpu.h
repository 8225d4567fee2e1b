// kernels/pq/pq_gpu.h
//
// Scores from codes on a GPU, and codes for new keys: pq_score.h's lut, score and weigh and
// pq_cluster.h's load and assign, with their bits. A launch takes all KV heads of one cache layer
// for one row.
//
//   codes       [n_kv_heads] pieces, head_stride bytes apart, of n_subspaces rows, codes_stride
//               bytes apart, in one of pq_codes.h's formats
//   codebooks   [n_kv_heads, n_subspaces, dims, n_padded], half_norms without dims
//   q           [n_kv_heads * n_group_heads, n_subspaces * dims] f32, after RoPE
//   lut         [n_kv_heads * n_group_heads, n_subspaces, n_padded]
//   scores      [n_kv_heads * n_group_heads, scores_stride]
//   weights     [n_kv_heads, weights_stride]
//   n_tokens    on the device: how many of the index's rows there are, tokens_max at most
//
//   assign      rows [rows[0], rows[1]) of the index get their codes in `codes`; those of other
//               rows stay. Key i of them, a stored one of type f16 or q8_0, lies at keys + head *
//               keys_head_stride + i * keys_stride: where gather_slots leaves it
//
// Cost  lut: reads the codebook once a q head, from the L2. score: the codes once a q head, mostly
//       from the L1. weigh: a CTA a KV head; scores are read three times and written once, and 16
//       threads add n_tokens / 16 numbers each, as the bits want it. assign: a CTA a KV head, a
//       thread a centroid; meant for the few tokens that leave a window in a step.
#pragma once

#include "kernels/pq/pq_codes.h"
#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

struct GpuPqIndex {
  PqCodeFormat format;
  u32 n_kv_heads;
  u32 n_group_heads;
  u32 n_subspaces;
  u32 dims;  // of a sub-space; % 32 == 0 for q8_0
  u32 n_padded;
  u8* codes;
  u64 head_stride;   // bytes
  u64 codes_stride;  // bytes
  const f32* codebooks;
  const f32* half_norms;
};

struct GpuPqLutArgs {
  GpuPqIndex index;
  const f32* q;
  f32* lut;
};

struct GpuPqScoreArgs {
  GpuPqIndex index;
  const f32* lut;
  f32* scores;
  u64 scores_stride;  // elements
  const u32* n_tokens;
  u32 tokens_max;
  f32 scale;
};

struct GpuPqWeighArgs {
  f32* scores;  // in; out: p
  u64 scores_stride;
  f32* weights;
  u64 weights_stride;
  const u32* n_tokens;
  u32 n_kv_heads;
  u32 n_group_heads;
};

struct GpuPqAssignArgs {
  GpuPqIndex index;
  TensorType type;
  const u8* keys;
  u64 keys_head_stride;  // bytes
  u64 keys_stride;       // bytes
  const u32* rows;       // [2]
};

}  // namespace tarn::kernels
