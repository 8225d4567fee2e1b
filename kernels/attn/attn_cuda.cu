// A CTA takes one span of one row and KV head, for up to 8 of its q heads, so K and V are read
// once. Each of its 4 warps takes every fourth tile of 16 slots by itself; at the end they add up.
//
// Both products are the matrix units', m16n8k16 of f16 with sums of f32, and their 8 columns are
// the q heads: scores are K [16 slots, dims] times q, values V^T [16 dims, 16 slots] times p. An
// f32 of q or p is the sum of two f16, high and low, so 22 bits of it count. A dot over dims, and
// the rows of a product, may be in any order: a lane's dims are those of 16 bytes that it loads at
// once.
//
// Per tile and warp, f16 with head_dim 128, by SASS (sm_87): 8 KiB of K and V in 16 loads, 32
// products, 658 instructions in all; of q8_0 1,111.
#include "kernels/attn/pages_cta.h"
#include "kernels/common/exp_cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/quant/quantize_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kTileSlots = 16;
constexpr u32 kColumns = 8;  // of a product: q heads of a CTA
constexpr u32 kCtaThreads = 128;
constexpr u32 kCtaWarps = kCtaThreads / kWarpLanes;
constexpr u32 kStepSlots = kTileSlots * kCtaWarps;
constexpr u32 kChunkBytes = 16;
constexpr f32 kNoScore = -__builtin_inff();
constexpr f32 kOfP = 16384.0f;  // p times it has few numbers below f16's smallest normal one

// Lane 4 * group + within holds, of a product's A, rows group and group + 8, of B the column group,
// of the sums columns 2 * within and the next.
TARN_DEVICE u32 group_of(const Cta& cta) { return cta.lane() / 4; }
TARN_DEVICE u32 within_of(const Cta& cta) { return cta.lane() % 4; }

// Two numbers as f16 pairs: high + low is each, but for 22 bits.
struct HighLow {
  u32 high, low;
};
TARN_DEVICE HighLow high_low(f32 first, f32 second) {
  const u16 high_first = narrow_f16(first), high_second = narrow_f16(second);
  const u16 low_first = narrow_f16(first - widen_f16(high_first));
  const u16 low_second = narrow_f16(second - widen_f16(high_second));
  return {high_first | static_cast<u32>(high_second) << 16, low_first | static_cast<u32>(low_second)
                                                                            << 16};
}

// Four codes, a byte each, less `bias`, times d, as f16.
TARN_DEVICE U32x2 four_f16(u32 codes, u32 bias, u32 d_twice) {
  constexpr u32 k1024 = 0x64006400u;  // as f16, twice: its last bits count ones
  const u32 minus = (k1024 + (bias | bias << 16)) ^ 0x80008000u;
  return {{mul_f16x2(add_f16x2(permute_bytes(codes, k1024, 0x5150u), minus), d_twice),
           mul_f16x2(add_f16x2(permute_bytes(codes, k1024, 0x5352u), minus), d_twice)}};
}

// Eight neighbouring elements as f16, those from 32 * block + 8 * eighth on, of the vector that
// begins at `byte` of a tile in shared memory.
template <KvType type>
TARN_DEVICE U32x4 eight_f16(const Shared<u32>& words, u32 byte, u32 block, u32 eighth) {
  const u32 begin = byte + block * kv_block_bytes(type);
  const u32 codes_at = begin + 2 + (type == KvType::q8_0 ? eighth : eighth % 2) * 8;
  const u32 d_word = words[begin / 4], d = d_word >> (begin % 4 * 8) & 0xffffu;
  const u32 first = words[codes_at / 4], second = words[codes_at / 4 + 1];
  u32 codes[2] = {first, second};
  if (codes_at % 4 != 0) {
    const u32 third = words[codes_at / 4 + 2];
    codes[0] = funnel_right(first, second, 16);
    codes[1] = funnel_right(second, third, 16);
  }
  U32x2 four[2];
  TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
    if constexpr (type == KvType::q8_0) {
      four[i] = four_f16(codes[i] ^ 0x80808080u, 128, d | d << 16);
    } else {  // the block's second half lies in the bytes' high halves
      four[i] = four_f16(codes[i] >> (eighth / 2 * 4) & 0x0f0f0f0fu, 8, d | d << 16);
    }
  }
  return {{four[0].w[0], four[0].w[1], four[1].w[0], four[1].w[1]}};
}

// kDims: 64, 128 or 256, what it has room for.
template <KvType type, u32 kDims>
struct AttendSpan {
  static constexpr u32 kThreads = kCtaThreads;
  // With one more, one of the architectures spills.
  static constexpr u32 kCtasASm = kDims > 128 ? 2 : kDims > 64 && type == KvType::f16 ? 3 : 4;
  static constexpr u32 kBlocks = kDims / 32;  // of dims: a lane has 8 of each, for two products
  static constexpr u32 kStrips = kDims / 64;  // of dims: a lane has 8 of each, for four products
  static constexpr u32 kOutStride = kDims + 1;
  // Tiles of blocks come through shared memory, the next one while this one is computed.
  static constexpr u32 kBuffers = type == KvType::f16 ? 0 : kDims <= 128 ? 2 : 1;
  static constexpr u32 kTileChunks = 2 * vector_bytes(type, kDims) * kTileSlots / kChunkBytes;
  static constexpr u32 kTilesRoom = kCtaWarps * kBuffers * kTileChunks;
  static constexpr u32 kOutRoom =
      (kCtaWarps * kColumns * kOutStride * static_cast<u32>(sizeof(f32)) + kChunkBytes - 1) /
      kChunkBytes;
  static constexpr u32 kRoom =
      kTilesRoom > kOutRoom ? kTilesRoom : kOutRoom;  // one, then the other
  static constexpr u64 kSharedBytes =
      shared_bytes_of(u64{kBlocks} * 2 * kWarpLanes, sizeof(U32x4)) +
      2 * shared_bytes_of(kColumns, sizeof(f32)) +
      2 * shared_bytes_of(kCtaWarps * kColumns, sizeof(f32)) +
      shared_bytes_of(kRoom, sizeof(U32x4));
  using Args = GpuAttnArgs;

  struct Place {
    u32 row, kv_head, first_head, n_heads;
    u32 span;        // of the launch
    u32 begin, end;  // slots [begin, end) of the row
  };

  // What the threads of a CTA share.
  struct Room {
    Shared<U32x4> q;     // [2 * kBlocks, 32 lanes]: a product's B, high and low
    Shared<f32> up;      // [kColumns]: a power of two, which q was multiplied with
    Shared<f32> scales;  // [kColumns]: of scores, less `up`
    Shared<f32> m, l;    // [kCtaWarps, kColumns]
    Shared<U32x4> tiles;
  };

  // A lane's part of K of a tile, slots group and group + 8; and of V, slots 2 * within, the next,
  // and those 8 behind them.
  struct Keys {
    U32x4 of[kBlocks][2];
  };
  struct Values {
    U32x4 of[kStrips][4];
  };
  struct Weights {
    u32 high[2], low[2];  // a product's B
    f32 decay[2];
  };

  TARN_DEVICE static u32 slot_bytes(const Args& args) {
    return 2 * vector_bytes(type, args.pages.head_dim);
  }
  TARN_DEVICE static Shared<U32x4> tile_of(Cta& cta, const Room& room, u32 slot) {
    if constexpr (kBuffers == 0) return room.tiles;
    const u32 buffer = kBuffers == 2 ? slot / kStepSlots % 2 : 0;
    return room.tiles.part((cta.warp() * kBuffers + buffer) * kTileChunks, kTileChunks);
  }

  // Asks for the tile from `slot` on, into shared memory.
  TARN_DEVICE static void fetch(Cta& cta, const Args& args, const Place& place, const Room& room,
                                u32 slot) {
    const Shared<U32x4> tile = tile_of(cta, room, slot);
    const u8* source = slot_address(args.pages, place.row, place.kv_head, slot);
    const u32 n_chunks = slot_bytes(args) * kTileSlots / kChunkBytes;
    for (u32 c = cta.lane(); c < n_chunks; c += kWarpLanes) {
      cta.copy_async(tile, c, source + u64{c} * kChunkBytes);
    }
    cta.copy_commit();
  }

  TARN_DEVICE static void take_keys(Cta& cta, const Args& args, const Place& place,
                                    const Room& room, u32 slot, Keys& keys) {
    const u32 head_dim = args.pages.head_dim, group = group_of(cta), within = within_of(cta);
    const u8* source = nullptr;
    if constexpr (type == KvType::f16) {
      source = slot_address(args.pages, place.row, place.kv_head, slot) + group * slot_bytes(args) +
               within * kChunkBytes;
    }
    TARN_UNROLL(kBlocks) for (u32 b = 0; b < kBlocks; ++b) {
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        keys.of[b][i] = U32x4{};
        if (32 * b + 8 * within >= head_dim) continue;
        if constexpr (type == KvType::f16) {
          keys.of[b][i] = load_once<U32x4>(source + i * 8 * slot_bytes(args) + b * 64);
        } else {
          keys.of[b][i] = eight_f16<type>(tile_of(cta, room, slot).template as<u32>(),
                                          (group + 8 * i) * slot_bytes(args), b, within);
        }
      }
    }
  }

  // Slots from n on are not there: the last one stands for them, with p = 0.
  TARN_DEVICE static void take_values(Cta& cta, const Args& args, const Place& place,
                                      const Room& room, u32 slot, u32 n, Values& values) {
    const u32 head_dim = args.pages.head_dim, group = group_of(cta), within = within_of(cta);
    const u32 vector = vector_bytes(type, head_dim);
    const u8* tile = nullptr;
    if constexpr (type == KvType::f16) {
      tile = slot_address(args.pages, place.row, place.kv_head, slot) + group * kChunkBytes;
    }
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) {
      const u32 there = 2 * within + i % 2 + i / 2 * 8;
      const u32 byte = (there < n ? there : n - 1) * slot_bytes(args) + vector;
      TARN_UNROLL(kStrips) for (u32 s = 0; s < kStrips; ++s) {
        values.of[s][i] = U32x4{};
        if (64 * s + 8 * group >= head_dim) continue;
        if constexpr (type == KvType::f16) {
          values.of[s][i] = load_once<U32x4>(tile + byte + s * 128);
        } else {
          values.of[s][i] = eight_f16<type>(tile_of(cta, room, slot).template as<u32>(), byte,
                                            2 * s + group / 4, group % 4);
        }
      }
    }
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 head_chunks = (args.n_group_heads + kColumns - 1) / kColumns;
    Place place;
    // Rows first: those of a prompt read the same span, and the L2 keeps it for them.
    place.row = cta.block() % args.rows_max;
    place.span = cta.block() / args.rows_max;
    place.kv_head = cta.block_y() / head_chunks;
    place.first_head = cta.block_y() % head_chunks * kColumns;
    place.n_heads = args.n_group_heads - place.first_head;
    if (place.n_heads > kColumns) place.n_heads = kColumns;
    if (place.row >= load<u32>(args.n_rows)) return;
    place.begin = (args.span_begin + place.span) * kGpuSpanSlots;
    place.end = args.visible[place.kv_head * args.visible_stride + place.row];
    if (place.end <= place.begin) return;
    if (place.end > place.begin + kGpuSpanSlots) place.end = place.begin + kGpuSpanSlots;

    const Room room{.q = cta.shared<U32x4>(kBlocks * 2 * kWarpLanes),
                    .up = cta.shared<f32>(kColumns),
                    .scales = cta.shared<f32>(kColumns),
                    .m = cta.shared<f32>(kCtaWarps * kColumns),
                    .l = cta.shared<f32>(kCtaWarps * kColumns),
                    .tiles = cta.shared<U32x4>(kRoom)};
    attend(cta, args, place, room);
  }

  TARN_DEVICE static void attend(Cta& cta, const Args& args, const Place& place, const Room& room) {
    const u32 first = place.begin + cta.warp() * kTileSlots;
    Keys keys;
    if (first < place.end) {
      if constexpr (type == KvType::f16) {
        take_keys(cta, args, place, room, first, keys);
      } else {
        fetch(cta, args, place, room, first);
      }
    }
    take_queries(cta, args, place, room);
    const u32 column = 2 * within_of(cta);
    const f32 scales[2] = {room.scales[column], room.scales[column + 1]};
    f32 m[2] = {kNoScore, kNoScore}, l[2] = {0.0f, 0.0f}, o[4 * kStrips][4] = {};
    for (u32 slot = first; slot < place.end; slot += kStepSlots) {
      const u32 next = slot + kStepSlots;
      const u32 n = place.end - slot < kTileSlots ? place.end - slot : kTileSlots;
      if constexpr (type != KvType::f16) {
        if (kBuffers == 2 && next < place.end) {
          fetch(cta, args, place, room, next);
          cta.copy_wait<1>();
        } else {
          cta.copy_wait<0>();
        }
        cta.sync_warp();  // every lane's part of the tile has arrived
        take_keys(cta, args, place, room, slot, keys);
      }
      f32 s[4];
      score(cta, args, room, keys, s);
      Values values;
      take_values(cta, args, place, room, slot, n, values);
      if constexpr (type == KvType::f16) {
        if (next < place.end) take_keys(cta, args, place, room, next, keys);
      } else {
        cta.sync_warp();  // all have read the tile, which another may replace
        if (kBuffers == 1 && next < place.end) fetch(cta, args, place, room, next);
      }
      const Weights weights = weigh(cta, s, scales, n, m, l);
      add_values(cta, values, weights, o);
    }
    merge_warps(cta, args, place, room, m, l, o);
  }

  // q as the products' B, with zeros for heads and dims that are not there. A power of two brings a
  // head's largest element near 2^13: f16 has the same bits of any q.
  TARN_DEVICE static void take_queries(Cta& cta, const Args& args, const Place& place,
                                       const Room& room) {
    const u32 head_dim = args.pages.head_dim;
    const u32 q_head = place.kv_head * args.n_group_heads + place.first_head;
    const f32* q = args.q + place.row * args.q_stride + u64{q_head} * head_dim;
    TARN_UNROLL(2) for (u32 h = cta.warp(); h < kColumns; h += kCtaWarps) {
      u32 largest = 0;  // |q| as bits, a NaN above all
      for (u32 i = cta.lane(); h < place.n_heads && i < head_dim; i += kWarpLanes) {
        const u32 size = bits_of(load<f32>(q + h * head_dim + i)) & 0x7fffffffu;
        largest = size > largest ? size : largest;
      }
      largest = max_warp(cta, largest);
      if (cta.lane() != 0) continue;
      const u32 field = largest >> 23, exponent = field < 14 ? 14 : field > 254 ? 254 : field;
      room.up[h] = float_of((267 - exponent) << 23);
      room.scales[h] = args.scale * float_of((exponent - 13) << 23);
    }
    cta.barrier();  // every head's power of two is there
    for (u32 i = cta.thread(); i < kBlocks * 2 * kWarpLanes; i += kThreads) {
      const u32 h = i % kWarpLanes / 4;
      const u32 dim = i / (2 * kWarpLanes) * 32 + i % 4 * 8 + i / kWarpLanes % 2 * 4;
      F32x4 four{};
      if (h < place.n_heads && dim < head_dim) {
        const f32 up = room.up[h];
        const f32* its = q + h * head_dim + dim;
        TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) four.v[e] = load<f32>(its + e) * up;
      }
      const HighLow first = high_low(four.v[0], four.v[1]);
      const HighLow second = high_low(four.v[2], four.v[3]);
      room.q[i] = U32x4{{first.high, second.high, first.low, second.low}};
    }
    cta.barrier();  // q is there
  }

  // Of slots group and group + 8, two columns each.
  TARN_DEVICE static void score(Cta& cta, const Args& args, const Room& room, const Keys& keys,
                                f32 (&s)[4]) {
    f32 high[4] = {}, low[4] = {};
    TARN_UNROLL(kBlocks) for (u32 b = 0; b < kBlocks; ++b) {
      if (32 * b >= args.pages.head_dim) continue;  // the whole CTA
      TARN_UNROLL(2) for (u32 half = 0; half < 2; ++half) {
        const U32x4 q = room.q[(2 * b + half) * kWarpLanes + cta.lane()];
        const u32 k[4] = {keys.of[b][0].w[2 * half], keys.of[b][1].w[2 * half],
                          keys.of[b][0].w[2 * half + 1], keys.of[b][1].w[2 * half + 1]};
        cta.mma_f16(high, k, {q.w[0], q.w[1]});
        cta.mma_f16(low, k, {q.w[2], q.w[3]});
      }
    }
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) s[i] = high[i] + low[i];
  }

  // One step of the softmax over a tile's n slots; m and l of the lane's columns, l of its slots.
  TARN_DEVICE static Weights weigh(Cta& cta, const f32 (&scores)[4], const f32 (&scales)[2], u32 n,
                                   f32 (&m)[2], f32 (&l)[2]) {
    const u32 group = group_of(cta);
    f32 p[4];
    Weights weights;
    TARN_UNROLL(2) for (u32 c = 0; c < 2; ++c) {
      const f32 first = group < n ? scores[c] * scales[c] : kNoScore;
      const f32 second = group + 8 < n ? scores[c + 2] * scales[c] : kNoScore;
      f32 max = second > first ? second : first;
      for (u32 mask = kWarpLanes / 2; mask >= 4; mask /= 2) {
        const f32 other = cta.shuffle_xor(max, mask);
        max = other > max ? other : max;
      }
      const f32 next = m[c] > max ? m[c] : max;
      weights.decay[c] = m[c] == kNoScore ? 0.0f : exp_f32(m[c] - next);
      p[c] = group < n ? exp_f32(first - next) : 0.0f;
      p[c + 2] = group + 8 < n ? exp_f32(second - next) : 0.0f;
      m[c] = next;
      l[c] = l[c] * weights.decay[c] + (p[c] + p[c + 2]);
    }
    TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
      const HighLow both = high_low(p[2 * i] * kOfP, p[2 * i + 1] * kOfP);
      weights.high[i] = cta.transpose(both.high);
      weights.low[i] = cta.transpose(both.low);
    }
    return weights;
  }

  // o[4 * s + j]: dims 64 * s + 8 * group + 2 * j and the next, two columns each.
  TARN_DEVICE static void add_values(Cta& cta, const Values& values, const Weights& weights,
                                     f32 (&o)[4 * kStrips][4]) {
    TARN_UNROLL(kStrips) for (u32 s = 0; s < kStrips; ++s) {
      TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
        const U32x4(&v)[4] = values.of[s];
        constexpr u32 kEven = 0x5410, kOdd = 0x7632;
        const u32 a[4] = {
            permute_bytes(v[0].w[j], v[1].w[j], kEven), permute_bytes(v[0].w[j], v[1].w[j], kOdd),
            permute_bytes(v[2].w[j], v[3].w[j], kEven), permute_bytes(v[2].w[j], v[3].w[j], kOdd)};
        f32(&sums)[4] = o[4 * s + j];
        TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) sums[i] = sums[i] * weights.decay[i % 2];
        cta.mma_f16(sums, a, weights.high);
        cta.mma_f16(sums, a, weights.low);
      }
    }
  }

  // The warps' states become the span's, in ascending order of warps.
  TARN_DEVICE static void merge_warps(Cta& cta, const Args& args, const Place& place,
                                      const Room& room, const f32 (&m)[2], f32 (&l)[2],
                                      const f32 (&o)[4 * kStrips][4]) {
    const u32 head_dim = args.pages.head_dim, column = 2 * within_of(cta), group = group_of(cta);
    TARN_UNROLL(2) for (u32 c = 0; c < 2; ++c) {
      for (u32 mask = kWarpLanes / 2; mask >= 4; mask /= 2) {
        l[c] = l[c] + cta.shuffle_xor(l[c], mask);
      }
      if (group != 0) continue;
      room.m[cta.warp() * kColumns + column + c] = m[c];
      room.l[cta.warp() * kColumns + column + c] = l[c];
    }
    cta.barrier();  // every warp's m and l are there, and no tile is read any more
    const Shared<f32> out = room.tiles.template as<f32>();  // [kCtaWarps, kColumns, kOutStride]
    TARN_UNROLL(2) for (u32 c = 0; c < 2; ++c) {
      if (column + c >= place.n_heads) continue;
      const f32 factor = factor_of(m[c], max_of(room, column + c)) * (1.0f / kOfP);
      const u32 at = (cta.warp() * kColumns + column + c) * kOutStride;
      TARN_UNROLL(4 * kStrips) for (u32 i = 0; i < 4 * kStrips; ++i) {
        const u32 dim = i / 4 * 64 + 8 * group + i % 4 * 2;
        if (dim >= head_dim) continue;
        out[at + dim] = o[i][c] * factor;
        out[at + dim + 1] = o[i][c + 2] * factor;
      }
    }
    cta.barrier();  // every warp's o is there
    for (u32 i = cta.thread(); i < place.n_heads * head_dim; i += kThreads) {
      const u32 h = i / head_dim, dim = i % head_dim;
      f32 sum = out[h * kOutStride + dim];
      TARN_UNROLL(kCtaWarps) for (u32 w = 1; w < kCtaWarps; ++w) {
        sum = sum + out[(w * kColumns + h) * kOutStride + dim];
      }
      store(partial_of(args, place, h) + dim, sum);
    }
    if (cta.thread() >= place.n_heads) return;
    const u32 h = cta.thread();
    const f32 max = max_of(room, h);
    f32 sum = 0.0f;
    TARN_UNROLL(kCtaWarps) for (u32 w = 0; w < kCtaWarps; ++w) {
      const f32 its_m = room.m[w * kColumns + h], its_l = room.l[w * kColumns + h];
      sum = fma(factor_of(its_m, max), its_l, sum);
    }
    store(partial_of(args, place, h) + head_dim, max);
    store(partial_of(args, place, h) + head_dim + 1, sum);
  }

  // A warp that had no tile has no score.
  TARN_DEVICE static f32 factor_of(f32 m, f32 max) {
    return m == kNoScore ? 0.0f : exp_f32(m - max);
  }
  TARN_DEVICE static f32 max_of(const Room& room, u32 h) {
    f32 max = kNoScore;
    TARN_UNROLL(kCtaWarps) for (u32 w = 0; w < kCtaWarps; ++w) {
      const f32 other = room.m[w * kColumns + h];
      max = other > max ? other : max;
    }
    return max;
  }

  TARN_DEVICE static f32* partial_of(const Args& args, const Place& place, u32 h) {
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = place.kv_head * args.n_group_heads + place.first_head + h;
    const u64 at = (u64{place.row} * n_heads + head) * args.spans_max + place.span;
    return args.partial + at * (u64{args.pages.head_dim} + 2);
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
        f32 of_spans[kGpuMergeSpans];  // asked for before anything waits
        TARN_UNROLL(kGpuMergeSpans) for (u32 s = 0; s < kGpuMergeSpans; ++s) {
          of_spans[s] = s < n_here && i < head_dim ? spans[s * stride + i] : 0.0f;
        }
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
        TARN_UNROLL(kGpuMergeSpans) for (u32 s = 0; s < kGpuMergeSpans; ++s) {
          if (s >= n_here) continue;
          const F32x2 weight = weights[s];
          sum = fma(weight.v[0], weight.v[1], sum);
          o = fma(weight.v[0], of_spans[s], o);
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

template <KvType type, u32 kDims>
void attend_with(const GpuAttnArgs& args, GpuStream* stream) {
  const u32 head_chunks = (args.n_group_heads + kColumns - 1) / kColumns;
  using Kernel = AttendSpan<type, kDims>;
  launch<Kernel>({.n_ctas = args.spans_max * args.rows_max,
                  .n_ctas_y = args.pages.n_kv_heads * head_chunks,
                  .shared_bytes = Kernel::kSharedBytes},
                 stream, args);
}

template <KvType type>
void attend_type(const GpuAttnArgs& args, GpuStream* stream) {
  if (args.pages.head_dim <= 64) return attend_with<type, 64>(args, stream);
  if (args.pages.head_dim <= 128) return attend_with<type, 128>(args, stream);
  return attend_with<type, 256>(args, stream);
}

template <KvType type>
void tell_type(const KernelSink& sink) {
  tell<AttendSpan<type, 64>, AttendSpan<type, 128>, AttendSpan<type, 256>>(sink);
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
