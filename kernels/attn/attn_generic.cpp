// kernels/attn/attn_generic.cpp: the portable bodies, and the ones to read first. Written so that
// the innermost loops run over neighbouring slots or dims, which a compiler may vectorise without
// changing any sum's order.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attn/attn.h"
#include "kernels/common/half.h"
#include "kernels/common/scalar.h"

namespace tarn::kernels {
namespace {

constexpr u32 kBlock = 32;  // elements of a q8_0 block
constexpr u32 kBlockBytes = 2 + kBlock;

// One vector of a slot (K or V) as f32.
void load_vector(KvType type, const u8* source, u32 head_dim, f32* out) {
  if (type == KvType::f16) {
    for (u32 i = 0; i < head_dim; ++i) {
      u16 half;
      std::memcpy(&half, source + 2 * i, sizeof half);
      out[i] = f16_to_f32(half);
    }
    return;
  }
  for (u32 begin = 0; begin < head_dim; begin += kBlock, source += kBlockBytes) {
    u16 half;
    std::memcpy(&half, source, sizeof half);
    const f32 d = f16_to_f32(half);
    for (u32 i = 0; i < kBlock; ++i) {
      out[begin + i] = d * static_cast<f32>(static_cast<i8>(source[2 + i]));
    }
  }
}

struct Tile {
  const f32* k;  // [head_dim, page_tokens], transposed: neighbouring lanes are neighbouring slots
  const f32* v;  // [page_tokens, head_dim]
  u32 page_tokens;
  u32 head_dim;
};

// What one (row, head) carries from tile to tile.
struct State {
  f32* o;  // [head_dim]
  f32* l;  // [16]
  f32* m;
};

// Takes the first n_slots slots of the tile into `state`. `p` and `sums` are scratch.
void attend_tile(const Tile& tile, const f32* q, f32 scale, u32 n_slots, const State& state, f32* p,
                 f32* sums) {
  for (u32 t = 0; t < n_slots; ++t) p[t] = 0.0f;
  for (u32 i = 0; i < tile.head_dim; ++i) {
    const f32* k = tile.k + u64{i} * tile.page_tokens;
    for (u32 t = 0; t < n_slots; ++t) p[t] = p[t] + q[i] * k[t];
  }
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
  for (u32 j = 0; j < 16; ++j) state.l[j] = state.l[j] * c + lanes[j];
  *state.m = m;
  for (u32 i = 0; i < tile.head_dim; ++i) sums[i] = 0.0f;
  for (u32 t = 0; t < n_slots; ++t) {
    const f32* v = tile.v + u64{t} * tile.head_dim;
    for (u32 i = 0; i < tile.head_dim; ++i) sums[i] = sums[i] + p[t] * v[i];
  }
  for (u32 i = 0; i < tile.head_dim; ++i) state.o[i] = state.o[i] * c + sums[i];
}

void store_vector_q8_0(const f32* x, u32 head_dim, u8* out) {
  for (u32 begin = 0; begin < head_dim; begin += kBlock, out += kBlockBytes) {
    u32 max_bits = 0;  // of |x|; compared as integers NaN is above inf, so it cannot get lost
    for (u32 i = 0; i < kBlock; ++i) {
      const u32 bits = std::bit_cast<u32>(x[begin + i]) & 0x7fffffffu;
      max_bits = bits > max_bits ? bits : max_bits;
    }
    const f32 d = std::bit_cast<f32>(max_bits) / 127.0f;
    const u16 half = f32_to_f16(d);
    std::memcpy(out, &half, sizeof half);
    const bool usable = half != 0 && half < 0x7c00;
    const f32 inverse = 1.0f / d;
    for (u32 i = 0; i < kBlock; ++i) {
      const f32 q = usable ? round_even(x[begin + i] * inverse) : 0.0f;
      out[2 + i] = static_cast<u8>(static_cast<i8>(q));
    }
  }
}

}  // namespace

void attn_generic(const AttnArgs& args) {
  const u32 d = args.head_dim;
  const u32 dims = (d + 15) / 16 * 16;
  const u64 slot_bytes = 2 * kv_vector_bytes(args.type, d);
  const u32 n_states = args.n_rows * args.n_group_heads;
  f32* k = static_cast<f32*>(args.scratch);
  f32* v = k + u64{args.page_tokens} * d;
  f32* p = v + u64{args.page_tokens} * d;
  f32* sums = p + args.page_tokens;
  f32* o = args.state != nullptr ? args.state : sums + d;
  f32* l = o + u64{n_states} * dims;
  f32* m = l + u64{n_states} * kAttnLanes;
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
      load_vector(args.type, slot, d, sums);
      for (u32 i = 0; i < d; ++i) k[u64{i} * args.page_tokens + t] = sums[i];
      load_vector(args.type, slot + slot_bytes / 2, d, v + u64{t} * d);
    }
    for (u32 s = 0; s < n_states; ++s) {
      const u32 n = s / args.n_group_heads;
      if (args.visible[n] <= begin) continue;
      const u32 seen = args.visible[n] - begin;
      const State state{.o = o + u64{s} * dims, .l = l + u64{s} * kAttnLanes, .m = m + s};
      attend_tile({.k = k, .v = v, .page_tokens = args.page_tokens, .head_dim = d},
                  args.q + n * args.q_stride + u64{s % args.n_group_heads} * d, args.scale,
                  seen < args.page_tokens ? seen : args.page_tokens, state, p, sums);
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
      continue;
    }
    for (u32 i = 0; i < args.head_dim; ++i) {
      const u16 half = f32_to_f16(sources[part][i]);
      std::memcpy(out + 2 * i, &half, sizeof half);
    }
  }
}

u64 kv_vector_bytes(KvType type, u32 head_dim) {
  return type == KvType::f16 ? u64{head_dim} * 2 : u64{head_dim} / kBlock * kBlockBytes;
}

}  // namespace tarn::kernels
