// attn.h's pages on a GPU: the append that fills them, the way back to f32, and a decode step's
// attention over them.
//
//   groups    device addresses of groups of one cache layer: group g of table t at t * table_stride
//             + g * group_stride, in slot order. A group is the pages of all KV heads over
//             page_tokens slots, page of head h at h * page_stride bytes; all multiples of 16
//   tables    [rows_max]: the table of a row's sequence
//   slots [rows_max]: the slot that a row writes;  visible [rows_max]: it attends to slots
//             [0, visible). With a stride each KV head has an entry of its own. Both lie on the
//             device, like everything that varies from step to step.
//
// kv_append writes K and V of each row into slots[n], with kv_store's bits (attn.h).
//
// kv_read writes K and V of a table's slots as f32, with dequantize_row's bits (dequant.h). What it
// reads kv_append stores with the same bytes again, but for blocks whose scale is no normal f16.
//
// attend cuts the slots into spans of 256 at fixed absolute places, reads each in tiles of 16, and
// merges the spans in ascending order. So the bits do not depend on the batch, the grid or the
// places of pages. K and V of q8_0 and q4_0 are rounded to f16, q and p to the sum of two f16. For
// each q head and span, four warps take every fourth tile:
//   s[t] = (sum over i of q[i]*k[t][i]) * scale by the matrix units;  m' = max(m, max s);
//   c = exp(m - m');  l of lanes t and t + 8 = l*c + (p[t] + p[t + 8]);  o[i] = o[i]*c, then plus
//   the sum over t of p[t]*v[t][i] by the matrix units
// then l's butterfly over the lanes, and the four warps' o and l, each times exp(m - max m), in
// ascending order.
// Merge, kGpuMergeSpans at a time, at fixed absolute places: M' = max(M, max m); c = exp(M - M');
// L = L*c, o = o*c; w = exp(m - M'); L = fma(w, l, L) and o = fma(w, o_span, o) over the spans
// ascending. out = o / L. visible = 0 gives zeros.
//
// A launch may take a part of the slots: spans [span_begin, span_begin + spans_max), with
// span_begin a multiple of kGpuMergeSpans. Parts ascend from 0. Rows with more visible slots leave
// M, L and o in `states` for the next part; the bits are those of one launch over all. Only the
// part's groups are read.
//
// Bound  |error| <= eps * max|v| * ((head_dim + 8)*A + 32*(T + S) + 64 * S + 64), eps = 2^-23, A as
//        in attn.h, here of the query itself, T tiles, S spans; of q8_0 and q4_0 2^-11 * max|v| *
//        (A + 1) more. Slots that are not visible never change the output, whatever they hold.
// Cost   reads K and V once per row and KV head, of rows that share tiles once for 8 rows or fewer;
//        writes and reads head_dim + 2 f32 a q head and span, 3 % of that at head_dim 128 and 4 q
//        heads.
#pragma once

#include "kernels/attn/attn.h"
#include "kernels/quant/activations_gpu.h"

namespace tarn::kernels {

struct GpuPages {
  KvType type;
  u32 page_tokens;  // 32, 64, 128 or 256
  u32 head_dim;     // f16: a multiple of 8, else of 32; 256 at most
  u32 n_kv_heads;
  u8* const* groups;
  u64 table_stride;  // elements
  u32 group_stride;  // elements
  u64 page_stride;   // bytes
  const u32* tables;
};

struct GpuKvAppendArgs {
  GpuPages pages;
  const f32* k;  // [rows_max, k_stride], head h at h * head_dim
  u64 k_stride;  // elements
  const f32* v;
  u64 v_stride;
  const u32* slots;
  const u32* n_rows;
  u32 rows_max;
};

struct GpuKvReadArgs {
  GpuPages pages;  // of tables[0]
  u32 first_slot;  // that row 0 is
  u32 n_rows;
  f32* k;        // [n_rows, k_stride], head h at h * head_dim; nullptr: not read
  u64 k_stride;  // elements
  f32* v;        // likewise
  u64 v_stride;
};

inline constexpr u32 kGpuSpanSlots = 256;
inline constexpr u32 kGpuMergeSpans = 16;
inline constexpr u32 kGpuMergeSlots = kGpuMergeSpans * kGpuSpanSlots;

struct GpuAttnArgs {
  GpuPages pages;
  const f32* q;  // [rows_max, q_stride]
  u64 q_stride;
  f32* out;  // [rows_max, out_stride], head h at h * head_dim; nullptr: quantized alone
  u64 out_stride;
  GpuQuantized quantized{};  // of all heads of a row: k = n_heads * head_dim, head_dim % 32 = 0
  const u32* visible;        // of KV head h from h * visible_stride on
  const u32* n_rows;
  u32 rows_max;
  u32 n_group_heads;  // q heads that share a KV head, consecutive
  u32 spans_max;      // of the grid, from span_begin on; without states it covers all visible slots
  f32 scale;
  f32* partial;  // gpu_attn_partial_bytes()
  u32 span_begin = 0;
  f32* states = nullptr;    // [rows_max, n_heads, head_dim + 2]: o, then M and L
  u32 visible_stride = 0;   // elements
  bool rows_share = false;  // rows of one sequence share the tiles that they read: equal bits
};

// Bytes of `partial`: for each row, q head and span of a launch o [head_dim], then m and l.
constexpr u64 gpu_attn_partial_bytes(u32 rows_max, u32 n_heads, u32 spans_max, u32 head_dim) {
  return u64{rows_max} * n_heads * spans_max * (u64{head_dim} + 2) * sizeof(f32);
}

}  // namespace tarn::kernels
