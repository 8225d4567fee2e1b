// kernels/attn/attn_cuda.cu
//
// A CTA takes one span of one row and KV head, for up to kHeads of its q heads, so K and V are read
// once. Tiles of 32 slots, K and V together, are contiguous in a page and come by asynchronous
// copies, the next one while this one is computed. Scores: a warp has a q head, a lane a slot, so a
// dot is sequential and needs no exchange. Values: a thread has two dims and every parts-th slot.
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
// that read the same chunk of neighbouring slots hit different banks. q8_0: as in the page, because
// a slot need not be whole chunks.
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
  const u32 bytes = head_dim / kKvBlock * kKvBlockBytes * 2;
  return {bytes, bytes, bytes * kTileSlots / kChunkBytes};
}

// Two tiles of wider heads would pass the 48 KiB that a CTA gets unasked.
constexpr bool fetches_ahead(u32 head_dim) { return head_dim <= 128; }

// Two neighbouring elements [2i, 2i+1] of the vector that begins at `byte`.
TARN_DEVICE F32x2 pair_at(KvType type, const Shared<u32>& words, u32 byte, u32 i) {
  if (type == KvType::f16) {
    const u32 word = words[byte / 4 + i];
    return {{widen_f16(static_cast<u16>(word & 0xffffu)), widen_f16(static_cast<u16>(word >> 16))}};
  }
  const u32 block = byte + i / (kKvBlock / 2) * kKvBlockBytes;
  const u32 codes_at = block + 2 + i % (kKvBlock / 2) * 2;
  const u32 d_word = words[block / 4], codes_word = words[codes_at / 4];
  const f32 d = widen_f16(static_cast<u16>(d_word >> (block % 4 * 8) & 0xffffu));
  const u32 codes = codes_word >> (codes_at % 4 * 8);
  return {{d * static_cast<f32>(static_cast<i8>(codes & 0xffu)),
           d * static_cast<f32>(static_cast<i8>(codes >> 8 & 0xffu))}};
}

template <KvType type, u32 kHeads>
struct AttendSpan {
  static constexpr u32 kThreads = kCtaThreads;
  using Args = GpuAttnArgs;
  static constexpr u32 kWarpHeads = (kHeads + kCtaWarps - 1) / kCtaWarps;  // a warp's q heads

  struct Place {
    u32 row, kv_head, first_head, n_heads, begin, end;  // slots [begin, end) of the row
  };

  // What the threads of a CTA share.
  struct Room {
    Shared<U32x4> tiles;  // one after the other
    Shared<f32> q;        // [kHeads, head_dim]
    Shared<f32> weights;  // [kHeads, kTileSlots]
    Shared<f32> decay;    // [kHeads]
  };

  static u64 shared_bytes(u32 head_dim) {
    const u64 n_buffers = fetches_ahead(head_dim) ? 2 : 1;
    return n_buffers * shared_bytes_of(tile_shape(type, head_dim).n_chunks, sizeof(U32x4)) +
           shared_bytes_of(u64{kHeads} * head_dim, sizeof(f32)) +
           shared_bytes_of(u64{kHeads} * kTileSlots, sizeof(f32)) +
           shared_bytes_of(kHeads, sizeof(f32));
  }

  TARN_DEVICE static void fetch(Cta& cta, const Args& args, const Place& place, u32 slot,
                                const Shared<U32x4>& tile) {
    const TileShape shape = tile_shape(type, args.pages.head_dim);
    const u8* source = slot_address(args.pages, place.row, place.kv_head, slot);
    const u32 n_chunks = shape.slot_bytes * kTileSlots / kChunkBytes;
    for (u32 c = cta.thread(); c < n_chunks; c += kThreads) {
      const u32 slot_chunks = shape.slot_bytes / kChunkBytes;
      const u32 target = type == KvType::f16
                             ? c / slot_chunks * (shape.stride / kChunkBytes) + c % slot_chunks
                             : c;
      cta.copy_async(tile, target, source + u64{c} * kChunkBytes);
    }
    cta.copy_commit();
  }

  // The score of this lane's slot for q head h.
  TARN_DEVICE static f32 score(Cta& cta, const Args& args, const Room& room,
                               const Shared<U32x4>& tile, u32 h) {
    const u32 head_dim = args.pages.head_dim;
    const u32 byte = cta.lane() * tile_shape(type, head_dim).stride;
    const Shared<F32x2> q = room.q.template as<F32x2>();
    const Shared<u32> words = tile.template as<u32>();
    f32 sum = 0.0f;
    for (u32 i = 0; i < head_dim / 2; ++i) {
      const F32x2 k = pair_at(type, words, byte, i);
      const F32x2 its_q = q[h * (head_dim / 2) + i];
      sum = fma(its_q.v[0], k.v[0], sum);
      sum = fma(its_q.v[1], k.v[1], sum);
    }
    return sum * args.scale;
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 head_dim = args.pages.head_dim;
    const u32 head_chunks = (args.n_group_heads + kHeads - 1) / kHeads;
    Place place;
    place.row = cta.block_y() / (args.pages.n_kv_heads * head_chunks);
    place.kv_head = cta.block_y() / head_chunks % args.pages.n_kv_heads;
    place.first_head = cta.block_y() % head_chunks * kHeads;
    place.n_heads = args.n_group_heads - place.first_head;
    if (place.n_heads > kHeads) place.n_heads = kHeads;
    if (place.row >= load<u32>(args.n_rows)) return;
    place.begin = cta.block() * kGpuSpanSlots;
    place.end = args.visible[place.row];
    if (place.end <= place.begin) return;
    if (place.end > place.begin + kGpuSpanSlots) place.end = place.begin + kGpuSpanSlots;

    const u32 n_chunks = tile_shape(type, head_dim).n_chunks;
    const u32 n_buffers = fetches_ahead(head_dim) ? 2 : 1;
    const Room room{.tiles = cta.shared<U32x4>(n_buffers * n_chunks),
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
        if (h >= place.n_heads) continue;  // a whole warp
        const bool seen = cta.lane() < n_slots;
        const f32 s = seen ? score(cta, args, room, tile, h) : kNoScore;
        f32 m_next = s;
        for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
          const f32 other = cta.shuffle_xor(m_next, mask);
          m_next = other > m_next ? other : m_next;
        }
        m_next = m[j] > m_next ? m[j] : m_next;
        const f32 c = m[j] == kNoScore ? 0.0f : exp_f32(m[j] - m_next);
        const f32 p = seen ? exp_f32(s - m_next) : 0.0f;
        m[j] = m_next;
        l[j] = l[j] * c + p;
        room.weights[h * kTileSlots + cta.lane()] = p;
        if (cta.lane() == 0) room.decay[h] = c;
      }
      cta.barrier();  // the weights of all heads are there
      if (part < parts) {
        TARN_UNROLL(kHeads) for (u32 h = 0; h < kHeads; ++h) {
          if (h >= place.n_heads) continue;
          const f32 c = room.decay[h];
          o[h][0] = o[h][0] * c;
          o[h][1] = o[h][1] * c;
        }
        const Shared<u32> words = tile.template as<u32>();
        const u32 stride = tile_shape(type, head_dim).stride;
        for (u32 t = part; t < n_slots; t += parts) {
          const F32x2 v = pair_at(type, words, t * stride + vector, pair);
          TARN_UNROLL(kHeads) for (u32 h = 0; h < kHeads; ++h) {
            if (h >= place.n_heads) continue;
            const f32 p = room.weights[h * kTileSlots + t];
            o[h][0] = fma(p, v.v[0], o[h][0]);
            o[h][1] = fma(p, v.v[1], o[h][1]);
          }
        }
      }
      cta.barrier();  // the tile and the weights may be overwritten
    }
    add_parts(cta, args, place, room, o);
    TARN_UNROLL(kWarpHeads) for (u32 j = 0; j < kWarpHeads; ++j) {
      const u32 h = cta.warp() + j * kCtaWarps;
      if (h >= place.n_heads) continue;
      const f32 sum = sum_warp(cta, l[j]);
      f32* partial = partial_of(cta, args, place, h);
      if (cta.lane() != 0) continue;
      partial[head_dim] = m[j];
      partial[head_dim + 1] = sum;
    }
  }

  TARN_DEVICE static f32* partial_of(Cta& cta, const Args& args, const Place& place, u32 h) {
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = place.kv_head * args.n_group_heads + place.first_head + h;
    const u64 at = (u64{place.row} * n_heads + head) * args.spans_max + cta.block();
    return args.partial + at * (u64{args.pages.head_dim} + 2);
  }

  // The parts of o, which lie with different threads, through the room of the first tile.
  TARN_DEVICE static void add_parts(Cta& cta, const Args& args, const Place& place,
                                    const Room& room, const f32 (&o)[kHeads][2]) {
    const u32 pairs = args.pages.head_dim / 2;
    const u32 parts = kThreads / pairs;
    const u32 part = cta.thread() / pairs, pair = cta.thread() % pairs;
    const Shared<F32x2> sums = room.tiles.template as<F32x2>();  // [parts, pairs]
    TARN_UNROLL(kHeads) for (u32 h = 0; h < kHeads; ++h) {
      if (h >= place.n_heads) continue;  // the whole CTA
      if (part < parts) sums[part * pairs + pair] = F32x2{{o[h][0], o[h][1]}};
      cta.barrier();  // all parts are there
      if (part == 0) {
        f32 first = o[h][0], second = o[h][1];
        for (u32 other = 1; other < parts; ++other) {
          const F32x2 more = sums[other * pairs + pair];
          first = first + more.v[0];
          second = second + more.v[1];
        }
        f32* partial = partial_of(cta, args, place, h);
        partial[2 * pair] = first;
        partial[2 * pair + 1] = second;
      }
      cta.barrier();  // the next head's parts take the same place
    }
  }
};

// A thread a dim of one row and q head.
struct MergeSpans {
  static constexpr u32 kThreads = 128;
  using Args = GpuAttnArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 head_dim = args.pages.head_dim;
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = cta.block(), row = cta.block_y();
    if (row >= load<u32>(args.n_rows)) return;
    const u32 n_spans = (args.visible[row] + kGpuSpanSlots - 1) / kGpuSpanSlots;
    const u64 stride = u64{head_dim} + 2;
    const f32* partial = args.partial + (u64{row} * n_heads + head) * args.spans_max * stride;
    f32 max = kNoScore;
    for (u32 s = 0; s < n_spans; ++s) {
      const f32 m = partial[s * stride + head_dim];
      max = m > max ? m : max;
    }
    for (u32 i = cta.thread(); i < head_dim; i += kThreads) {
      f32 sum = 0.0f, o = 0.0f;
      for (u32 s = 0; s < n_spans; ++s) {
        const f32* span = partial + s * stride;
        const f32 weight = exp_f32(span[head_dim] - max);
        sum = fma(weight, span[head_dim + 1], sum);
        o = fma(weight, span[i], o);
      }
      const f32 value = n_spans == 0 ? 0.0f : o / sum;
      if (args.out != nullptr) args.out[row * args.out_stride + u64{head} * head_dim + i] = value;
      if (args.quantized.q != nullptr) {  // whole warps, because 32 divides head_dim
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
      {.n_ctas = args.spans_max,
       .n_ctas_y = args.rows_max * args.pages.n_kv_heads * head_chunks,
       .shared_bytes = AttendSpan<type, kHeads>::shared_bytes(args.pages.head_dim)},
      stream, args);
}

template <KvType type>
void attend_type(const GpuAttnArgs& args, GpuStream* stream) {
  if (args.n_group_heads == 1) return attend_with<type, 1>(args, stream);
  if (args.n_group_heads == 2) return attend_with<type, 2>(args, stream);
  if (args.n_group_heads <= 4) return attend_with<type, 4>(args, stream);
  return attend_with<type, 8>(args, stream);
}

}  // namespace

void attend_gpu(const GpuAttnArgs& args, GpuStream* stream) {
  if (args.pages.type == KvType::f16) {
    attend_type<KvType::f16>(args, stream);
  } else {
    attend_type<KvType::q8_0>(args, stream);
  }
  const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
  launch<MergeSpans>({.n_ctas = n_heads, .n_ctas_y = args.rows_max}, stream, args);
}

}  // namespace tarn::kernels::TARN_GPU
