// Attention over pages, with an online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867;
// tiles as in Dao et al. 2022, arXiv:2205.14135), and the append that fills the pages.
//
//   page     K and V of `page_tokens` slots of one KV head: [page_tokens, 2, head_dim], 2 = {K, V}
//            f16    2 * head_dim * 2 bytes a token
//            q8_0   K then V, each head_dim/32 blocks of {d f16, q i8[32]}; head_dim % 32 == 0
//            q4_0   likewise of {d f16, u8[16]}: element j of 32 in the low half of byte j, element
//                   16 + j in its high half, as q + 8
//   q        [n_rows, q_stride] f32, after RoPE; head h at h * head_dim
//   out      [n_rows, out_stride] f32, same shape; aliases nothing
//
// Row n attends to slots [0, visible[n]) of its own table. Operations per head, in this order:
//   tile = one page; tiles in ascending order from slot 0. Within a tile, for its visible slots t:
//     s[t] = (sum over i ascending of q[i]*k[t][i]) * scale            sequential fma from 0
//            over q8_0 and q4_0, whose d and integers are d_k and i_k, with the query quantised per
//            32 (kernels/quant/activations.h) to d_q and i_q: (sum over blocks ascending of
//            f32(sum of i_q*i_k) * (d_q*d_k)) * scale                  sequential fma from 0
//     m' = max(m, max s);  c = exp(m - m');  p[t] = exp(s[t] - m')
//     l[j] = fma(l[j], c, sum over t ascending with t mod 16 = j of p[t])  16 lanes, sums from 0
//     o[i] = fma(o[i], c, sum over t ascending of p[t]*v[t][i])        sequential fma from 0
//   out[i] = o[i] / sum16(l), whose tree adds halves as in kernels/norm/norm.h.
//   First tile: m = -inf, c = 0 by definition, o = l = 0. visible = 0 gives zeros.
// A call may take a part of the slots, [slot_begin, slot_end), and leave m, l and o in `state` for
// the next call. Parts in ascending order, cut at borders of pages, give the bits of one call over
// all slots. The part that begins at slot 0 initialises the state; the part with the last visible
// slot of any row writes `out`. So memory for a few pages is enough for any length of KV.
// The same bits on every ISA, for any batch and any split of the rows. V enters as f32 (exact from
// f16; else f32(d) * f32(q)), and so does K of f16. A NaN or +inf among the scores of a row makes
// its output NaN. Slots that are not visible to a row never change its output, whatever they hold.
//
// Bound  |error| <= eps * max|v| * ((head_dim + 5)*A + 6*T + page_tokens + 8), eps = 2^-23,
//        A = max over t of scale * sum|q[i]*k[t][i]|, T = tiles. Over q8_0 and q4_0 q is the query
//        as it is quantised, within d_q / 2 * (1 + 254 eps) of what it was, or 0 below 2^-120. A
//        weight's error is the dot's head_dim roundings of A, those of s - m' (at most 2*A), exp's
//        2 ulp, and 2.5 eps a tile for c. It counts twice, in numerator and denominator. The sum
//        over a tile's slots starts from 0, so the sums add page_tokens + T roundings, not visible.
// Cost   reads K and V once per call: decode is bound by KV bytes, prefill (16 rows) by
//        2 * head_dim multiply-adds per (row, head, slot), of f32; over q8_0 and q4_0 half are of
//        integers.
#pragma once

#include "kernels/quant/tensor_type.h"
#include "platform/base/types.h"

namespace tarn::kernels {

enum class KvType : u8 { f16, q8_0, q4_0 };

// The tensor type whose blocks a vector of K or V consists of.
constexpr TensorType kv_tensor_type(KvType type) {
  return type == KvType::f16    ? TensorType::f16
         : type == KvType::q8_0 ? TensorType::q8_0
                                : TensorType::q4_0;
}
// Bytes of K (or V) of one token of one head. head_dim % 32 == 0 for q8_0 and q4_0.
u64 kv_vector_bytes(KvType type, u32 head_dim);

// One task of attention: rows that share a sequence's table (a prefill slice, or one decode row),
// one KV head and its q heads.
struct AttnArgs {
  KvType type;
  const u8* const* pages;  // [n_pages] of this KV head, in slot order from slot_begin on; each
                           // readable whole: slots that no row sees are read, and have no weight,
                           // whatever they hold
  u32 page_tokens;         // multiple of 16
  u32 head_dim;            // even, 8..256
  const f32* q;            // first q head of this KV head in row 0
  u64 q_stride;            // elements between rows
  f32* out;                // same head in row 0
  u64 out_stride;
  u32 n_rows;          // 1..kAttnRowsMax
  u32 n_group_heads;   // q heads that share this KV head, consecutive, >= 1
  const u32* visible;  // [n_rows], visible slots of each row
  f32 scale;
  void* scratch;           // attn_scratch_bytes(), 64-byte aligned, one per worker
  u32 slot_begin = 0;      // a multiple of page_tokens
  u32 slot_end = ~u32{0};  // likewise, or beyond the visible slots of all rows
  // attn_state_bytes(): o [n_states, head_dim up to whole lanes], l [n_states, kAttnLanes],
  // m [n_states], f32; n_states = n_rows * n_group_heads. nullptr: this call takes all slots.
  f32* state = nullptr;
};
inline constexpr u32 kAttnRowsMax = 16;
inline constexpr u32 kAttnLanes = 16;                   // of a state's l
inline constexpr u32 kAttnTailFloats = kAttnLanes + 1;  // of a state behind o: l and m
constexpr u64 attn_state_bytes(u32 head_dim, u32 n_states) {
  const u64 dims = (u64{head_dim} + kAttnLanes - 1) / kAttnLanes * kAttnLanes;
  return sizeof(f32) * n_states * (dims + kAttnTailFloats);
}
constexpr u64 attn_scratch_bytes(u32 page_tokens, u32 head_dim, u32 n_group_heads) {
  // K and V of a tile as f32 (K of 32 slots at least; dims padded to 64); then per (row, head) o, a
  // page's scores, l, m, c and a body's own data, and the query quantised, as a body wants it.
  const u64 d = (u64{head_dim} + 63) / 64 * 64;
  const u64 k_slots = page_tokens < 32 ? 32 : page_tokens;
  const u64 n_states = u64{kAttnRowsMax} * n_group_heads;
  return 4 * ((k_slots + page_tokens) * d + n_states * (2 * d + page_tokens + 32));
}
using AttnFn = void (*)(const AttnArgs& args);
void attn_generic(const AttnArgs& args);
void attn_avx2(const AttnArgs& args);
void attn_avx512(const AttnArgs& args);

// Writes K and V of one token of one head into its slot. f16 by round to nearest even; q8_0 per 32:
// d = max|x|/127 (f32 division), stored as f16; q = round to nearest even of x * (1/d), d before it
// is rounded. q4_0 per 32: d = x'/-8 of the first x' of the largest magnitude, q = the same, at
// most 7: as in llama.cpp, except for ties. Where the stored d is 0 or not finite, q = 0. A NaN
// among the 32 makes d NaN, so it reaches the output.
struct KvStoreArgs {
  KvType type;
  const f32* k;  // [head_dim]
  const f32* v;  // [head_dim]
  u8* slot;      // 2 * kv_vector_bytes()
  u32 head_dim;
};
using KvStoreFn = void (*)(const KvStoreArgs& args);
void kv_store_generic(const KvStoreArgs& args);
void kv_store_avx2(const KvStoreArgs& args);
void kv_store_avx512(const KvStoreArgs& args);

}  // namespace tarn::kernels
