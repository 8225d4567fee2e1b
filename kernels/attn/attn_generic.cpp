// kernels/attn/attn_generic.cpp: the portable bodies, and the ones to read first. Written so that
// the innermost loops run over neighbouring slots or dims, which a compiler may vectorise without
// changing any sum's order.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attn/attn.h"
#include "kernels/common/half.h"
#include "kernels/common/scalar.h"
#include "kernels/quant/activations.h"

namespace tarn::kernels {
namespace {

constexpr u32 kBlock = 32;  // elements of a block of q8_0 or q4_0
constexpr u32 kQ8Bytes = 2 + kBlock;
constexpr u32 kQ4Bytes = 2 + kBlock / 2;

// One vector of a slot (K or V) as f32; of q8_0 and q4_0 the integers, and the scale of each 32.
void load_vector(KvType type, const u8* source, u32 head_dim, f32* out, f32* scales) {
  if (type == KvType::f16) {
    for (u32 i = 0; i < head_dim; ++i) {
      u16 half;
      std::memcpy(&half, source + 2 * i, sizeof half);
      out[i] = f16_to_f32(half);
    }
    return;
  }
  const u32 block_bytes = type == KvType::q8_0 ? kQ8Bytes : kQ4Bytes;
  for (u32 begin = 0; begin < head_dim; begin += kBlock, source += block_bytes) {
    u16 half;
    std::memcpy(&half, source, sizeof half);
    scales[begin / kBlock] = f16_to_f32(half);
    for (u32 i = 0; i < kBlock; ++i) {
      const u8* packed = source + 2;
      const i32 q = type == KvType::q8_0 ? static_cast<i8>(packed[i])
                                         : (packed[i % 16] >> (i / 16 * 4) & 15) - 8;
      out[begin + i] = static_cast<f32>(q);
    }
  }
}

struct Tile {
  const f32* k;         // [head_dim, page_tokens], transposed: neighbouring lanes are neighbouring
                        // slots; of q8_0 and q4_0 the integers
  const f32* k_scales;  // [head_dim / 32, page_tokens], of q8_0 and q4_0
  const f32* v;         // [page_tokens, head_dim]
  u32 page_tokens;
  u32 head_dim;
};

// A query of head_dim elements, and over q8_0 and q4_0 its quantised form.
struct Query {
  const f32* elements;
  const i8* q;        // [head_dim], or nullptr over f16
  const f32* scales;  // [head_dim / 32]
};

// p[t] = sum of q[i] * k[t][i]. `dots` is scratch, [page_tokens].
void dot_slots(const Tile& tile, const Query& query, u32 n_slots, f32* p, f32* dots) {
  for (u32 t = 0; t < n_slots; ++t) p[t] = 0.0f;
  if (query.q == nullptr) {
    for (u32 i = 0; i < tile.head_dim; ++i) {
      const f32* k = tile.k + u64{i} * tile.page_tokens;
      for (u32 t = 0; t < n_slots; ++t) p[t] = fma_f32(query.elements[i], k[t], p[t]);
    }
    return;
  }
  for (u32 begin = 0; begin < tile.head_dim; begin += kBlock) {
    for (u32 t = 0; t < n_slots; ++t) dots[t] = 0.0f;
    for (u32 i = begin; i < begin + kBlock; ++i) {
      const f32* k = tile.k + u64{i} * tile.page_tokens;
      const f32 q = query.q[i];
      // Exact: 32 products of at most 127 * 128 stay below 2^24.
      for (u32 t = 0; t < n_slots; ++t) dots[t] = dots[t] + q * k[t];
    }
    const f32* k_scales = tile.k_scales + u64{begin} / kBlock * tile.page_tokens;
    const f32 q_scale = query.scales[begin / kBlock];
    for (u32 t = 0; t < n_slots; ++t) p[t] = fma_f32(dots[t], q_scale * k_scales[t], p[t]);
  }
}

// The state that one (row, head) carries from tile to tile.
struct State {
  f32* o;  // [head_dim]
  f32* l;  // [16]
  f32* m;
};

// Takes the first n_slots slots of the tile into `state`. Scratch: p [page_tokens], and sums, the
// larger of page_tokens and head_dim.
void attend_tile(const Tile& tile, const Query& query, f32 scale, u32 n_slots, const State& state,
                 f32* p, f32* sums) {
  dot_slots(tile, query, n_slots, p, sums);
  f32 m = *state.m;
  for (u32 t = 0; t < n_slots; ++t) {
    p[t] = p[t] * scale;
    m = p[t] > m ? p[t] : m;
  }
  const f32 c = *state.m == -std::numeric_limits<f32>::infinity() ? 0.0f : exp_f32(*state.m - m);
  f32 lanes[16] = {};
  for (u32 t = 0; t < n_slots; ++t) {
    p[t] = exp_f32(p[t] - m);
    lanes[t % 16] = lanes[t % 16] + p[t];
  }
  for (u32 j = 0; j < 16; ++j) state.l[j] = fma_f32(state.l[j], c, lanes[j]);
  *state.m = m;
  for (u32 i = 0; i < tile.head_dim; ++i) sums[i] = 0.0f;
  for (u32 t = 0; t < n_slots; ++t) {
    const f32* v = tile.v + u64{t} * tile.head_dim;
    for (u32 i = 0; i < tile.head_dim; ++i) sums[i] = fma_f32(p[t], v[i], sums[i]);
  }
  for (u32 i = 0; i < tile.head_dim; ++i) state.o[i] = fma_f32(state.o[i], c, sums[i]);
}

// The first of a block's elements that has the largest magnitude. Compared as integers NaN is above
// inf, so it cannot get lost.
f32 largest(const f32* x) {
  u32 largest_bits = 0;
  for (u32 i = 0; i < kBlock; ++i) {
    const u32 bits = std::bit_cast<u32>(x[i]);
    if ((bits & 0x7fffffffu) > (largest_bits & 0x7fffffffu)) largest_bits = bits;
  }
  return std::bit_cast<f32>(largest_bits);
}

// Stores d; what a block's elements are multiplied by, or 0 where they all are stored as 0.
f32 store_scale(f32 d, u8* out) {
  const u16 half = f32_to_f16(d);
  std::memcpy(out, &half, sizeof half);
  const u16 magnitude = half & 0x7fff;
  return magnitude != 0 && magnitude < 0x7c00 ? 1.0f / d : 0.0f;
}

// An element in steps of its block's d.
f32 rounded(f32 x, f32 inverse) { return inverse != 0.0f ? round_even(x * inverse) : 0.0f; }

void store_vector_q8_0(const f32* x, u32 head_dim, u8* out) {
  for (; head_dim > 0; head_dim -= kBlock, x += kBlock, out += kQ8Bytes) {
    const f32 inverse = store_scale(std::fabs(largest(x)) / 127.0f, out);
    for (u32 i = 0; i < kBlock; ++i) {
      out[2 + i] = static_cast<u8>(static_cast<i8>(rounded(x[i], inverse)));
    }
  }
}

void store_vector_q4_0(const f32* x, u32 head_dim, u8* out) {
  const auto packed = [](f32 x_i, f32 inverse) {
    const f32 q = rounded(x_i, inverse);
    return static_cast<u32>((q < 7.0f ? q : 7.0f) + 8.0f);
  };
  for (; head_dim > 0; head_dim -= kBlock, x += kBlock, out += kQ4Bytes) {
    const f32 inverse = store_scale(largest(x) / -8.0f, out);
    for (u32 i = 0; i < kBlock / 2; ++i) {
      out[2 + i] = static_cast<u8>(packed(x[i], inverse) | packed(x[16 + i], inverse) << 4);
    }
  }
}

}  // namespace

void attn_generic(const AttnArgs& args) {
  const u32 d = args.head_dim;
  const u32 dims = (d + 15) / 16 * 16;
  const u64 slot_bytes = 2 * kv_vector_bytes(args.type, d);
  const u32 n_states = args.n_rows * args.n_group_heads;
  const u32 n_group_elems = args.n_group_heads * d;
  const bool quantized = args.type != KvType::f16;
  f32* k = static_cast<f32*>(args.scratch);
  f32* v = k + u64{args.page_tokens} * d;
  f32* p = v + u64{args.page_tokens} * d;
  f32* sums = p + args.page_tokens;
  f32* state_floats = sums + (d > args.page_tokens ? d : args.page_tokens);
  f32* o = args.state != nullptr ? args.state : state_floats;
  f32* l = o + u64{n_states} * dims;
  f32* m = l + u64{n_states} * kAttnLanes;
  f32* k_scales = state_floats + u64{n_states} * (dims + kAttnTailFloats);
  f32* scales = k_scales + u64{d} / kBlock * args.page_tokens;
  f32* query_scales = scales + d / kBlock;
  i32* query_sums = reinterpret_cast<i32*>(query_scales + u64{n_states} * d / kBlock);
  i8* query = reinterpret_cast<i8*>(query_sums + u64{n_states} * d / 16);
  if (quantized) {
    quantize_activations_generic({.x = args.q,
                                  .x_stride = args.q_stride,
                                  .q = query,
                                  .scales = query_scales,
                                  .sums = query_sums,
                                  .n_rows = args.n_rows,
                                  .k = n_group_elems});
  }
  u32 visible_max = 0;
  for (u32 n = 0; n < args.n_rows; ++n) {
    visible_max = args.visible[n] > visible_max ? args.visible[n] : visible_max;
  }
  if (args.slot_begin == 0) {
    for (u64 i = 0; i < u64{n_states} * dims; ++i) o[i] = 0.0f;
    for (u64 i = 0; i < u64{n_states} * 16; ++i) l[i] = 0.0f;
    for (u32 s = 0; s < n_states; ++s) m[s] = -std::numeric_limits<f32>::infinity();
  }

  const u32 end = visible_max < args.slot_end ? visible_max : args.slot_end;
  for (u32 begin = args.slot_begin; begin < end; begin += args.page_tokens) {
    const u8* page = args.pages[(begin - args.slot_begin) / args.page_tokens];
    const u32 left = end - begin;
    const u32 n_loaded = left < args.page_tokens ? left : args.page_tokens;
    for (u32 t = 0; t < n_loaded; ++t) {
      const u8* slot = page + t * slot_bytes;
      load_vector(args.type, slot, d, sums, scales);
      for (u32 i = 0; i < d; ++i) k[u64{i} * args.page_tokens + t] = sums[i];
      for (u32 b = 0; quantized && b < d / kBlock; ++b) {
        k_scales[u64{b} * args.page_tokens + t] = scales[b];
      }
      f32* v_t = v + u64{t} * d;
      load_vector(args.type, slot + slot_bytes / 2, d, v_t, scales);
      for (u32 i = 0; quantized && i < d; ++i) v_t[i] = scales[i / kBlock] * v_t[i];
    }
    for (u32 s = 0; s < n_states; ++s) {
      const u32 n = s / args.n_group_heads;
      if (args.visible[n] <= begin) continue;
      const u32 seen = args.visible[n] - begin;
      const State state{.o = o + u64{s} * dims, .l = l + u64{s} * kAttnLanes, .m = m + s};
      attend_tile(
          {.k = k, .k_scales = k_scales, .v = v, .page_tokens = args.page_tokens, .head_dim = d},
          {.elements = args.q + n * args.q_stride + u64{s % args.n_group_heads} * d,
           .q = quantized ? query + u64{s} * d : nullptr,
           .scales = query_scales + u64{s} * d / kBlock},
          args.scale, seen < args.page_tokens ? seen : args.page_tokens, state, p, sums);
    }
  }
  if (end < visible_max) return;
  for (u32 s = 0; s < n_states; ++s) {
    const u32 n = s / args.n_group_heads;
    f32* out = args.out + n * args.out_stride + u64{s % args.n_group_heads} * d;
    const f32 sum = sum16(l + u64{s} * 16);
    for (u32 i = 0; i < d; ++i) out[i] = args.visible[n] == 0 ? 0.0f : o[u64{s} * dims + i] / sum;
  }
}

void kv_store_generic(const KvStoreArgs& args) {
  const u64 vector_bytes = kv_vector_bytes(args.type, args.head_dim);
  const f32* const sources[2] = {args.k, args.v};
  for (u32 part = 0; part < 2; ++part) {
    u8* out = args.slot + part * vector_bytes;
    if (args.type == KvType::q8_0) {
      store_vector_q8_0(sources[part], args.head_dim, out);
    } else if (args.type == KvType::q4_0) {
      store_vector_q4_0(sources[part], args.head_dim, out);
    } else {
      for (u32 i = 0; i < args.head_dim; ++i) {
        const u16 half = f32_to_f16(sources[part][i]);
        std::memcpy(out + 2 * i, &half, sizeof half);
      }
    }
  }
}

u64 kv_vector_bytes(KvType type, u32 head_dim) {
  const u64 n_blocks = head_dim / kBlock;
  return type == KvType::f16    ? u64{head_dim} * 2
         : type == KvType::q8_0 ? n_blocks * kQ8Bytes
                                : n_blocks * kQ4Bytes;
}

}  // namespace tarn::kernels
