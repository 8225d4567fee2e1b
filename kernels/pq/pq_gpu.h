// The choice of tokens for a row with selection, on a GPU: pq_score.h's lut, score and weigh,
// pq_pairs.h's choice, and pq_cluster.h's load and assign for new keys, with the same bits. A
// launch takes all KV heads of one cache layer for one row; assign takes those of all cache layers.
//
//   index     of all tables (a session each) and heads. A head's index is one piece: its codebooks
//             [n_subspaces, dims, n_padded] f32 first, then at their offsets half norms
//             [n_subspaces, n_padded] f32, codes (n_subspaces rows, codes_stride bytes apart, in
//             one of pq_codes.h's formats), and, for a choice by pairs of codes, the number of rows
//             with each pair, [n_padded, n_padded] u32
//   places    a sub-space has `dims` neighbouring places of a key. Among the first adjacent_dims
//             dims, the even ones take the first places in order, then the odd ones; a later dim's
//             place is its number
//   q         [n_kv_heads * n_group_heads, n_subspaces * dims] f32, after RoPE
//   lut       [n_kv_heads * n_group_heads, n_subspaces, n_padded]
//   scores    [n_kv_heads * n_group_heads, scores_stride]
//   weights   [n_kv_heads, weights_stride]
//   n_tokens  on the device: the number of the index's rows, tokens_max at most
//
//   pairs     out [n_kv_heads, out_stride] u32: places of the k best, as in pq_pairs.h; k on the
//             device. n_subspaces = 2, n_padded <= kPqPairSideMax
//   assign    rows [begin, end) get codes; the key of row i is in slot slot_begin + i. Counts, if
//             there are any, cover rows [0, counted) before and [0, end) afterwards; counted >
//             begin after rows were cut away. Codes of other rows stay
//
// Cost  lut: reads the codebook once a q head, from the L2. score: the codes once a q head, mostly
//       from the L1. weigh: a CTA a KV head; scores are read three times and written once, and 16
//       threads add n_tokens / 16 numbers each, in the order that the bits need. pairs: a CTA a KV
//       head; an exponential a pair and q head, 17 passes over the pairs' weights in registers,
//       then reads the codes once, 2,048 tokens between two barriers. assign: a CTA a KV head, a
//       thread a centroid; for the few tokens that leave a window in a step.
#pragma once

#include "kernels/pq/pq_codes.h"
#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

struct GpuPqIndex {
  PqCodeFormat format;
  u32 n_kv_heads;
  u32 n_group_heads;
  u32 n_subspaces;
  u32 dims;  // of a sub-space
  u32 adjacent_dims;
  u32 n_padded;
  u8* heads;          // of the cache layer, in table 0; multiples of 4 from here on
  u64 head_stride;    // bytes
  u64 table_stride;   // bytes
  const u32* table;   // on the device: the table of the row's sequence
  u64 half_norms_at;  // bytes from a head's begin
  u64 codes_at;
  u64 counts_at;     // 0: there are none
  u64 codes_stride;  // bytes
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

struct GpuPqPairsArgs {
  GpuPqIndex index;
  const f32* lut;
  u32* out;
  u64 out_stride;  // elements
  const u32* n_tokens;
  const u32* k;
  f32 scale;
};

struct GpuPqNewRows {
  u32 slot_begin;  // of row 0
  u32 begin, end;
  u32 counted;
};

// The places of keys: a group is the pages of all KV heads over page_tokens slots, with the page of
// head h at h * page_stride bytes. Groups are found as in attn_gpu.h.
struct GpuPqKeys {
  TensorType type;  // f16, q8_0 or q4_0
  u32 page_tokens;
  u8* const* groups;  // of cache layer 0; each next cache layer's is one element further
  u64 table_stride;   // elements
  u32 group_stride;   // elements
  u64 page_stride;    // bytes
  u64 slot_stride;    // bytes
};

struct GpuPqAssignArgs {
  GpuPqIndex index;  // of cache layer 0; heads of the others lie behind it
  GpuPqKeys keys;    // of the same table
  u32 n_cache_layers;
  const GpuPqNewRows* rows;  // on the device
};

}  // namespace tarn::kernels
