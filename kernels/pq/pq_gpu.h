// kernels/pq/pq_gpu.h
//
// What a row that selects chooses, on a GPU: pq_score.h's lut, score and weigh, pq_pairs.h's
// choice, and pq_cluster.h's load and assign for new keys, with their bits. A launch takes all KV
// heads of one cache layer for one row; assign those of all cache layers.
//
//   index     of all tables (a session each) and heads: a head's is one piece, its codebooks
//             [n_subspaces, dims, n_padded] f32 first, then at their offsets half norms
//             [n_subspaces, n_padded] f32, codes (n_subspaces rows, codes_stride bytes apart, in
//             one of pq_codes.h's formats), and where the choice goes by pairs of codes how many
//             rows have each pair, [n_padded, n_padded] u32
//   places    a sub-space has `dims` neighbouring places of a key. Of the first adjacent_dims dims
//             the even ones take the first places, the odd ones those behind them, each in order;
//             a dim behind them has its own number for a place
//   q         [n_kv_heads * n_group_heads, n_subspaces * dims] f32, after RoPE
//   lut       [n_kv_heads * n_group_heads, n_subspaces, n_padded]
//   scores    [n_kv_heads * n_group_heads, scores_stride]
//   weights   [n_kv_heads, weights_stride]
//   n_tokens  on the device: how many of the index's rows there are, tokens_max at most
//
//   pairs     out [n_kv_heads, out_stride] u32: places of the k best, as from pq_pairs.h; k on the
//             device. n_subspaces = 2, n_padded <= kPqPairSideMax
//   assign    rows [begin, end) get codes; the key of row i is that of slot slot_begin + i. Counts,
//             where there are any, stand for rows [0, counted) before it and [0, end) afterwards,
//             so counted > begin where rows were cut away. Codes of other rows stay
//
// Cost  lut: reads the codebook once a q head, from the L2. score: the codes once a q head, mostly
//       from the L1. weigh: a CTA a KV head; scores are read three times and written once, and 16
//       threads add n_tokens / 16 numbers each, as the bits want it. pairs: a CTA a KV head; an
//       exponential a pair and q head, twice, 17 passes over the pairs' weights in shared memory,
//       then reads the codes once. assign: a CTA a KV head, a thread a centroid; meant for the few
//       tokens that leave a window in a step.
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
  const u32* table;   // on the device: which table the row's sequence has
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

// Where keys lie: pages of all KV heads over page_tokens slots are a group, page of head h at h *
// page_stride bytes, and groups are found as in attn_gpu.h.
struct GpuPqKeys {
  TensorType type;  // f16, q8_0 or q4_0
  u32 page_tokens;
  u8* const* groups;  // of cache layer 0; those of the others an element behind the other
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
