// A CTA takes one span of one row and KV head, for up to kHeads of its q heads, so K and V are read
// once. Tiles of 32 slots, K and V together, are contiguous in a page and come by asynchronous
// copies, the next one while this one is computed. Scores: a warp has a q head, a lane a slot, so a
// dot is sequential and needs no exchange. Values: a thread has two dims and every parts-th slot.
//
// For a tile of f16, head_dim 128 and 4 q heads, by SASS (sm_90): 640 cycles of shared memory (128
// to fill it, 384 for scores, 128 for values) and 800 instructions in each of the 4 warps, where an
// H100's share of bandwidth takes 1,130 cycles to bring its 16 KiB and an Orin Nano's 1,310.
#include "kernels/attn/pages_cta.h"
#include "kernels/common/exp_cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/quant/quantize_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kTileSlots = 32;
constexpr u32 kCtaThreads = 128;
constexpr u32 kCtaWarps = kCtaThreads / kWarpLanes;
constexpr u32 kChunkBytes = 16;
constexpr f32 kNoScore = -__builtin_inff();

// How a tile lies in shared memory. f16: a slot's chunks, padded to an odd number, so that lanes
// that read the same chunk of neighbouring slots hit different banks. Blocks: as in the page,
// because a slot need not be whole chunks.
struct TileShape {
  u32 slot_bytes;  // in the page
  u32 stride;      // of slots in shared memory, bytes
  u32 n_chunks;    // of a buffer
};

constexpr TileShape tile_shape(KvType type, u32 head_dim) {
  if (type == KvType::f16) {
    const u32 chunks = head_dim * 4 / kChunkBytes | 1u;
    return {head_dim * 4, chunks * kChunkBytes, chunks * kTileSlots};
  }
  const u32 bytes = vector_bytes(type, head_dim) * 2;
  return {bytes, bytes, bytes * kTileSlots / kChunkBytes};
}

// Two tiles of wider heads would pass the 48 KiB that a CTA gets unasked.
constexpr bool fetches_ahead(u32 head_dim) { return head_dim <= 128; }

// The element whose code begins at this bit.
TARN_DEVICE f32 nibble(u32 codes, u32 bit) {
  return static_cast<f32>(static_cast<i32>(codes >> bit & 15u) - 8);
}

// Two neighbouring elements [2i, 2i+1] of the vector that begins at `byte`.
TARN_DEVICE F32x2 pair_at(KvType type, const Shared<u32>& words, u32 byte, u32 i) {
  if (type == KvType::f16) {
    const u32 word = words[byte / 4 + i];
    return {{widen_f16(static_cast<u16>(word & 0xffffu)), widen_f16(static_cast<u16>(word >> 16))}};
  }
  constexpr u32 kPairs = kKvBlock / 2;  // of a block
  const u32 block = byte + i / kPairs * kv_block_bytes(type);
  const u32 codes_at = block + 2 + i % (type == KvType::q8_0 ? kPairs : kPairs / 2) * 2;
  const u32 d_word = words[block / 4], codes_word = words[codes_at / 4];
  const f32 d = widen_f16(static_cast<u16>(d_word >> (block % 4 * 8) & 0xffffu));
  const u32 codes = codes_word >> (codes_at % 4 * 8);
  if (type == KvType::q4_0) {  // the block's second half lies in the bytes' high halves
    const u32 shift = i % kPairs / (kPairs / 2) * 4;
    return {{d * nibble(codes, shift), d * nibble(codes, shift + 8)}};
  }
  return {{d * static_cast<f32>(static_cast<i8>(codes & 0xffu)),
           d * static_cast<f32>(static_cast<i8>(codes >> 8 & 0xffu))}};
}

// What an AttendSpan's CTA carves: room for the tiles, where the parts of o come at the end; q,
// weights and decays.
constexpr u32 tile_room(KvType type, u32 n_heads, u32 head_dim) {
  const u32 n_tiles = (fetches_ahead(head_dim) ? 2 : 1) * tile_shape(type, head_dim).n_chunks;
  const u32 n_parts = n_heads * kCtaThreads * static_cast<u32>(sizeof(F32x2)) / kChunkBytes;
  return n_tiles > n_parts ? n_tiles : n_parts;
}
constexpr u64 span_shared_bytes(KvType type, u32 n_heads, u32 head_dim) {
  return shared_bytes_of(tile_room(type, n_heads, head_dim), sizeof(U32x4)) +
         shared_bytes_of(u64{n_heads} * head_dim, sizeof(f32)) +
         shared_bytes_of(u64{n_heads} * kTileSlots, sizeof(f32)) +
         shared_bytes_of(n_heads, sizeof(f32));
}
// It grows with the head but where there is no second tile any more.
constexpr u64 span_shared_bytes_max(KvType type, u32 n_heads) {
  const u64 ahead = span_shared_bytes(type, n_heads, 128);
  const u64 one_tile = span_shared_bytes(type, n_heads, 256);
  return ahead > one_tile ? ahead : one_tile;
}

template <KvType type, u32 kHeads>
struct AttendSpan {
  static constexpr u32 kThreads = kCtaThreads;
  static constexpr u64 kSharedBytes = span_shared_bytes_max(type, kHeads);
  using Args = GpuAttnArgs;
  static constexpr u32 kWarpHeads = (kHeads + kCtaWarps - 1) / kCtaWarps;  // a warp's q heads

  struct Place {
    u32 row, kv_head, first_head, n_heads;
    u32 span;        // of the launch
    u32 begin, end;  // slots [begin, end) of the row
  };

  // A weight of each of the q heads, as one vector. Heads that are not there have zeros.
  struct alignas(kHeads * sizeof(f32) < 16 ? kHeads * sizeof(f32) : 16) Weights {
    f32 v[kHeads < 4 ? kHeads : 4];
  };
  static constexpr u32 kVectors = kHeads * sizeof(f32) / sizeof(Weights);  // for all heads

  // What the threads of a CTA share.
  struct Room {
    Shared<U32x4> tiles;  // one after the other; at the end the parts of o
    Shared<f32> q;        // [kHeads, head_dim]
    Shared<f32> weights;  // [kTileSlots, kHeads]
    Shared<f32> decay;    // [kHeads]
  };

  TARN_DEVICE static void fetch(Cta& cta, const Args& args, const Place& place, u32 slot,
                                const Shared<U32x4>& tile) {
    const TileShape shape = tile_shape(type, args.pages.head_dim);
    const u8* source = slot_address(args.pages, place.row, place.kv_head, slot);
    if constexpr (type == KvType::f16) {  // a warp a slot: no division
      const u32 chunks = shape.slot_bytes / kChunkBytes, stride = shape.stride / kChunkBytes;
      TARN_UNROLL(4) for (u32 i = cta.warp(); i < kTileSlots; i += kCtaWarps) {
        TARN_UNROLL(1) for (u32 c = cta.lane(); c < chunks; c += kWarpLanes) {  // one, mostly
          cta.copy_async(tile, i * stride + c, source + u64{i * chunks + c} * kChunkBytes);
        }
      }
    } else {
      for (u32 c = cta.thread(); c < shape.n_chunks; c += kThreads) {
        cta.copy_async(tile, c, source + u64{c} * kChunkBytes);
      }
    }
    cta.copy_commit();
  }

  // sum + four elements of q times as many of k, ascending.
  TARN_DEVICE static f32 add_products(f32 sum, const F32x4& q, const F32x4& k) {
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) sum = fma(q.v[i], k.v[i], sum);
    return sum;
  }

  // The score of this lane's slot for q head h.
  TARN_DEVICE static f32 score(Cta& cta, const Args& args, const Room& room,
                               const Shared<U32x4>& tile, u32 h) {
    const u32 head_dim = args.pages.head_dim;
    const u32 stride = tile_shape(type, head_dim).stride;
    const Shared<F32x4> all_q = room.q.template as<F32x4>();
    const Shared<F32x4> q = all_q.part(h * (head_dim / 4), head_dim / 4);
    if constexpr (type == KvType::f16) {
      return args.scale * dot_f16(cta.lane() * (stride / kChunkBytes), tile, q);
    } else {
      return args.scale * dot_blocks(cta.lane() * (stride / 4), tile, q);
    }
  }

  TARN_DEVICE static f32 dot_f16(u32 first, const Shared<U32x4>& tile, const Shared<F32x4>& q) {
    f32 sum = 0.0f;
    TARN_UNROLL(4) for (u32 c = 0; c < q.count() / 2; ++c) {
      const U32x4 words = tile[first + c];
      F32x4 low, high;
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        low.v[2 * i] = widen_f16(static_cast<u16>(words.w[i] & 0xffffu));
        low.v[2 * i + 1] = widen_f16(static_cast<u16>(words.w[i] >> 16));
        high.v[2 * i] = widen_f16(static_cast<u16>(words.w[2 + i] & 0xffffu));
        high.v[2 * i + 1] = widen_f16(static_cast<u16>(words.w[2 + i] >> 16));
      }
      const F32x4 q_low = q[2 * c], q_high = q[2 * c + 1];
      sum = add_products(add_products(sum, q_low, low), q_high, high);
    }
    return sum;
  }

  // A block is 34 bytes, or 18: of two neighbours the first begins with a word, the second half a
  // word later, and so do their codes the other way round.
  TARN_DEVICE static f32 dot_blocks(u32 first, const Shared<U32x4>& tile, const Shared<F32x4>& q) {
    constexpr u32 kBytes = kv_block_bytes(type), kCodeWords = kBytes / 4;
    const Shared<u32> words = tile.template as<u32>();
    f32 sum = 0.0f;
    for (u32 block = 0; block < q.count() / 8; ++block) {
      const bool odd = block % 2 != 0;
      const u32 begin = first + block * kBytes / 4;
      u32 word = words[begin];
      const f32 d = widen_f16(static_cast<u16>(odd ? word >> 16 : word & 0xffffu));
      u32 codes[kCodeWords];
      TARN_UNROLL(kCodeWords) for (u32 i = 0; i < kCodeWords; ++i) {
        const u32 next = words[begin + 1 + i];
        codes[i] = odd ? next : funnel_right(word, next, 16);
        word = next;
      }
      TARN_UNROLL(8) for (u32 i = 0; i < 8; ++i) {
        const F32x4 k = four_of(codes, i, d);
        const F32x4 its_q = q[block * 8 + i];
        sum = add_products(sum, its_q, k);
      }
    }
    return sum;
  }

  // Elements [4i, 4i + 4) of a block.
  template <u32 n_words>
  TARN_DEVICE static F32x4 four_of(const u32 (&codes)[n_words], u32 i, f32 d) {
    F32x4 k;
    TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) {
      if constexpr (type == KvType::q4_0) {
        k.v[e] = d * nibble(codes[i % n_words], i / n_words * 4 + 8 * e);
      } else {
        k.v[e] = d * static_cast<f32>(static_cast<i8>(codes[i] >> (8 * e) & 0xffu));
      }
    }
    return k;
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 head_dim = args.pages.head_dim;
    const u32 head_chunks = (args.n_group_heads + kHeads - 1) / kHeads;
    Place place;
    // Rows first: those of a prompt read the same span, and the L2 keeps it for them.
    place.row = cta.block() % args.rows_max;
    place.span = cta.block() / args.rows_max;
    place.kv_head = cta.block_y() / head_chunks;
    place.first_head = cta.block_y() % head_chunks * kHeads;
    place.n_heads = args.n_group_heads - place.first_head;
    if (place.n_heads > kHeads) place.n_heads = kHeads;
    if (place.row >= load<u32>(args.n_rows)) return;
    place.begin = (args.span_begin + place.span) * kGpuSpanSlots;
    place.end = args.visible[place.kv_head * args.visible_stride + place.row];
    if (place.end <= place.begin) return;
    if (place.end > place.begin + kGpuSpanSlots) place.end = place.begin + kGpuSpanSlots;

    const Room room{.tiles = cta.shared<U32x4>(tile_room(type, kHeads, head_dim)),
                    .q = cta.shared<f32>(kHeads * head_dim),
                    .weights = cta.shared<f32>(kHeads * kTileSlots),
                    .decay = cta.shared<f32>(kHeads)};
    attend(cta, args, place, room);
  }

  TARN_DEVICE static void attend(Cta& cta, const Args& args, const Place& place, const Room& room) {
    const u32 head_dim = args.pages.head_dim;
    const bool ahead = fetches_ahead(head_dim);
    const u32 n_chunks = tile_shape(type, head_dim).n_chunks;
    if (ahead) fetch(cta, args, place, place.begin, room.tiles.part(0, n_chunks));
    const u32 q_head = place.kv_head * args.n_group_heads + place.first_head;
    const f32* q = args.q + place.row * args.q_stride + u64{q_head} * head_dim;
    for (u32 i = cta.thread(); i < place.n_heads * head_dim; i += kThreads) room.q[i] = q[i];

    const u32 pairs = head_dim / 2;
    const u32 parts = kThreads / pairs;
    const u32 part = cta.thread() / pairs, pair = cta.thread() % pairs;
    const u32 vector = vector_bytes(type, head_dim);
    f32 m[kWarpHeads], l[kWarpHeads], o[kHeads][2];
    TARN_UNROLL(kWarpHeads) for (u32 j = 0; j < kWarpHeads; ++j) {
      m[j] = kNoScore;
      l[j] = 0.0f;
    }
    TARN_UNROLL(kHeads) for (u32 h = 0; h < kHeads; ++h) o[h][0] = o[h][1] = 0.0f;

    for (u32 slot = place.begin; slot < place.end; slot += kTileSlots) {
      const u32 buffer = ahead ? slot / kTileSlots % 2 : 0;
      const Shared<U32x4> tile = room.tiles.part(buffer * n_chunks, n_chunks);
      if (!ahead) fetch(cta, args, place, slot, tile);
      if (ahead && slot + kTileSlots < place.end) {
        const u32 other = (buffer ^ 1u) * n_chunks;
        fetch(cta, args, place, slot + kTileSlots, room.tiles.part(other, n_chunks));
        cta.copy_wait<1>();
      } else {
        cta.copy_wait<0>();
      }
      cta.barrier();  // every thread's part of the tile, and q, have arrived
      const u32 n_slots = place.end - slot < kTileSlots ? place.end - slot : kTileSlots;
      TARN_UNROLL(kWarpHeads) for (u32 j = 0; j < kWarpHeads; ++j) {
        const u32 h = cta.warp() + j * kCtaWarps;
        if (h >= kHeads) continue;  // a whole warp, and below
        f32 c = 0.0f, p = 0.0f;
        if (h < place.n_heads) {
          const bool seen = cta.lane() < n_slots;
          const f32 s = seen ? score(cta, args, room, tile, h) : kNoScore;
          const f32 m_tile = max_warp(cta, s);
          const f32 m_next = m[j] > m_tile ? m[j] : m_tile;
          c = m[j] == kNoScore ? 0.0f : exp_f32(m[j] - m_next);
          p = seen ? exp_f32(s - m_next) : 0.0f;
          m[j] = m_next;
          l[j] = l[j] * c + p;
        }
        room.weights[cta.lane() * kHeads + h] = p;
        if (cta.lane() == 0) room.decay[h] = c;
      }
      cta.barrier();  // the weights of all heads are there
      if (part < parts) {
        for_weights(room.decay, 0, [&](u32 h, f32 c) {
          o[h][0] = o[h][0] * c;
          o[h][1] = o[h][1] * c;
        });
        const Shared<u32> words = tile.template as<u32>();
        const u32 stride = tile_shape(type, head_dim).stride;
        TARN_UNROLL(4) for (u32 t = part; t < n_slots; t += parts) {
          const F32x2 v = pair_at(type, words, t * stride + vector, pair);
          for_weights(room.weights, t, [&](u32 h, f32 p) {
            o[h][0] = fma(p, v.v[0], o[h][0]);
            o[h][1] = fma(p, v.v[1], o[h][1]);
          });
        }
      }
      cta.barrier();  // the tile and the weights may be overwritten
    }
    add_parts(cta, args, place, room, o);
    TARN_UNROLL(kWarpHeads) for (u32 j = 0; j < kWarpHeads; ++j) {
      const u32 h = cta.warp() + j * kCtaWarps;
      if (h >= place.n_heads) continue;
      const f32 sum = sum_warp(cta, l[j]);
      f32* partial = partial_of(args, place, h);
      if (cta.lane() != 0) continue;
      store(partial + head_dim, m[j]);
      store(partial + head_dim + 1, sum);
    }
  }

  // Calls fn(head, its weight) for the weights of slot t.
  template <class Fn>
  TARN_DEVICE static void for_weights(const Shared<f32>& weights, u32 t, Fn&& fn) {
    const Shared<Weights> vectors = weights.template as<Weights>();
    TARN_UNROLL(kVectors) for (u32 i = 0; i < kVectors; ++i) {
      const Weights of_heads = vectors[t * kVectors + i];
      constexpr u32 kInVector = kHeads / kVectors;
      TARN_UNROLL(kInVector) for (u32 j = 0; j < kInVector; ++j) {
        fn(i * kInVector + j, of_heads.v[j]);
      }
    }
  }

  TARN_DEVICE static f32* partial_of(const Args& args, const Place& place, u32 h) {
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = place.kv_head * args.n_group_heads + place.first_head + h;
    const u64 at = (u64{place.row} * n_heads + head) * args.spans_max + place.span;
    return args.partial + at * (u64{args.pages.head_dim} + 2);
  }

  // The parts of o, which lie with different threads, through the room of the tiles.
  TARN_DEVICE static void add_parts(Cta& cta, const Args& args, const Place& place,
                                    const Room& room, const f32 (&o)[kHeads][2]) {
    const u32 pairs = args.pages.head_dim / 2;
    const u32 parts = kThreads / pairs;
    const Shared<F32x2> sums = room.tiles.template as<F32x2>();  // [kHeads, parts, pairs]
    if (cta.thread() < parts * pairs) {
      TARN_UNROLL(kHeads) for (u32 h = 0; h < kHeads; ++h) {
        sums[h * parts * pairs + cta.thread()] = F32x2{{o[h][0], o[h][1]}};
      }
    }
    cta.barrier();  // all parts are there
    for (u32 i = cta.thread(); i < place.n_heads * pairs; i += kThreads) {
      const u32 h = i / pairs, pair = i % pairs;
      F32x2 sum = sums[h * parts * pairs + pair];
      for (u32 part = 1; part < parts; ++part) {
        const F32x2 more = sums[(h * parts + part) * pairs + pair];
        sum.v[0] = sum.v[0] + more.v[0];
        sum.v[1] = sum.v[1] + more.v[1];
      }
      f32* partial = partial_of(args, place, h);
      store(partial + 2 * pair, sum.v[0]);
      store(partial + 2 * pair + 1, sum.v[1]);
    }
  }
};

// A thread a dim of one row and q head; the weights of some spans, a thread each, through shared
// memory.
struct MergeSpans {
  static constexpr u32 kThreads = 128;
  static constexpr u32 kCtasASm = 8;  // with more, or none said, one of the architectures spills
  static_assert(kGpuMergeSpans <= kWarpLanes);  // a lane a span finds their largest m
  static constexpr u64 kSharedBytes = shared_bytes_of(kGpuMergeSpans, sizeof(F32x2));
  using Args = GpuAttnArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<F32x2> weights = cta.shared<F32x2>(kGpuMergeSpans);  // of spans, and their l
    const u32 head_dim = args.pages.head_dim;
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = cta.block(), row = cta.block_y();
    if (row >= load<u32>(args.n_rows)) return;
    const u32 visible = args.visible[head / args.n_group_heads * args.visible_stride + row];
    const u32 n_spans = (visible + kGpuSpanSlots - 1) / kGpuSpanSlots;
    const u32 end = args.span_begin + args.spans_max;
    if (args.span_begin > 0 && n_spans <= args.span_begin) return;  // its end was in a part before
    const u32 n = (n_spans < end ? n_spans : end) - args.span_begin;
    const u64 stride = u64{head_dim} + 2;
    const u64 at = u64{row} * n_heads + head;
    const f32* partial = args.partial + at * args.spans_max * stride;
    f32* state = args.states == nullptr ? nullptr : args.states + at * stride;
    const bool goes_on = state != nullptr && n_spans > end;
    for (u32 first = 0; first < head_dim; first += kThreads) {
      const u32 i = first + cta.thread();
      f32 max = kNoScore, sum = 0.0f, o = 0.0f;
      if (state != nullptr && args.span_begin > 0) {
        max = state[head_dim];
        sum = state[head_dim + 1];
        if (i < head_dim) o = state[i];
      }
      for (u32 begin = 0; begin < n; begin += kGpuMergeSpans) {
        const u32 n_here = n - begin < kGpuMergeSpans ? n - begin : kGpuMergeSpans;
        const f32* spans = partial + begin * stride;
        const bool has_span = cta.lane() < n_here;
        const f32* its = spans + (has_span ? cta.lane() : 0) * stride + head_dim;
        const f32 max_here = max_warp(cta, has_span ? its[0] : kNoScore);
        const f32 next = max > max_here ? max : max_here;
        const f32 decay = max == kNoScore ? 0.0f : exp_f32(max - next);
        max = next;
        if (cta.thread() < n_here) {
          weights[cta.thread()] = F32x2{{exp_f32(its[0] - next), its[1]}};
        }
        cta.barrier();  // the weights of these spans are there
        sum = sum * decay;
        o = o * decay;
        TARN_UNROLL(8) for (u32 s = 0; s < n_here; ++s) {
          const F32x2 weight = weights[s];
          sum = fma(weight.v[0], weight.v[1], sum);
          if (i < head_dim) o = fma(weight.v[0], spans[s * stride + i], o);
        }
        cta.barrier();  // all have read them, and the state
      }
      if (goes_on) {
        if (i < head_dim) store(state + i, o);
        if (i == head_dim - 1) {  // in the last turn
          store(state + head_dim, max);
          store(state + head_dim + 1, sum);
        }
        continue;
      }
      const f32 value = n_spans == 0 ? 0.0f : o / sum;
      if (i >= head_dim) continue;  // whole warps, where 32 divides head_dim
      if (args.out != nullptr) {
        store(args.out + row * args.out_stride + u64{head} * head_dim + i, value);
      }
      if (args.quantized.q != nullptr) {
        quantize_element(cta, value, args.quantized, row, u64{n_heads} * head_dim,
                         head * head_dim + i);
      }
    }
  }
};

template <KvType type, u32 kHeads>
void attend_with(const GpuAttnArgs& args, GpuStream* stream) {
  const u32 head_chunks = (args.n_group_heads + kHeads - 1) / kHeads;
  launch<AttendSpan<type, kHeads>>(
      {.n_ctas = args.spans_max * args.rows_max,
       .n_ctas_y = args.pages.n_kv_heads * head_chunks,
       .shared_bytes = span_shared_bytes(type, kHeads, args.pages.head_dim)},
      stream, args);
}

template <KvType type>
void attend_type(const GpuAttnArgs& args, GpuStream* stream) {
  if (args.n_group_heads == 1) return attend_with<type, 1>(args, stream);
  if (args.n_group_heads == 2) return attend_with<type, 2>(args, stream);
  if (args.n_group_heads <= 4) return attend_with<type, 4>(args, stream);
  return attend_with<type, 8>(args, stream);
}

template <KvType type>
void tell_type(const KernelSink& sink) {
  tell<AttendSpan<type, 1>, AttendSpan<type, 2>, AttendSpan<type, 4>, AttendSpan<type, 8>>(sink);
}

}  // namespace

void attend_gpu(const GpuAttnArgs& args, GpuStream* stream) {
  switch (args.pages.type) {
    case KvType::f16:
      attend_type<KvType::f16>(args, stream);
      break;
    case KvType::q8_0:
      attend_type<KvType::q8_0>(args, stream);
      break;
    case KvType::q4_0:
      attend_type<KvType::q4_0>(args, stream);
      break;
  }
  const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
  launch<MergeSpans>(
      {.n_ctas = n_heads, .n_ctas_y = args.rows_max, .shared_bytes = MergeSpans::kSharedBytes},
      stream, args);
}

void attn_kernels(const KernelSink& sink) {
  tell_type<KvType::f16>(sink);
  tell_type<KvType::q8_0>(sink);
  tell_type<KvType::q4_0>(sink);
  tell<MergeSpans>(sink);
}

}  // namespace tarn::kernels::TARN_GPU
