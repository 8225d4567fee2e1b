// A CTA takes one span of one row and KV head, for up to 8 of its q heads, so K and V are read
// once; or of up to 8 rows of one sequence. Each of its 4 warps takes every fourth tile of 16 slots
// by itself; at the end they add up.
//
// Both products are the matrix units', m16n8k16 of f16 with sums of f32, and their 8 columns are
// the q heads: scores are K [16 slots, dims] times q, values V^T [16 dims, 16 slots] times p. An
// f32 of q or p is the sum of two f16, high and low, so 22 bits of it count. A dot over dims, and
// the rows of a product, may be in any order: a lane's dims are those of 16 bytes that it loads at
// once. Columns do not touch each other, so rows side by side have the bits of each by itself.
//
// Per tile and warp, head_dim 128, by SASS (sm_87): 8 KiB of K and V of f16 in 16 loads, 32
// products, 669 instructions in all; of q8_0 1,122. Of 8 rows with 4 q heads each 128 products in
// 1,954 and 2,341.
#include "kernels/attn/merge_spans_cta.h"
#include "kernels/attn/pages_cta.h"
#include "kernels/common/exp_cta.h"
#include "kernels/common/reduce_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kTileSlots = 16;
constexpr u32 kColumns = 8;  // of a product: q heads of a CTA
constexpr u32 kCtaThreads = 128;
constexpr u32 kCtaWarps = kCtaThreads / kWarpLanes;
constexpr u32 kStepSlots = kTileSlots * kCtaWarps;
constexpr u32 kChunkBytes = 16;
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

// The columns of a CTA: one product's, or for rows of one sequence several products', as many as
// registers and shared memory have room for.
constexpr u32 many_products(u32 dims) { return dims <= 128 ? 4 : 1; }

// kDims: 64, 128 or 256, what it has room for. kProducts: of 8 columns each.
template <KvType type, u32 kDims, u32 kProducts>
struct AttendSpan {
  static constexpr u32 kThreads = kCtaThreads;
  // With one more, one of the architectures spills.
  static constexpr u32 kCtasASm = kDims > 128 || kProducts > 1        ? 2
                                  : kDims > 64 && type == KvType::f16 ? 3
                                                                      : 4;
  static constexpr u32 kBlocks = kDims / 32;  // of dims: a lane has 8 of each, for two products
  static constexpr u32 kStrips = kDims / 64;  // of dims: a lane has 8 of each, for four products
  static constexpr u32 kOutStride = kDims + 1;
  // Tiles of blocks come through shared memory, the next one while this one is computed.
  static constexpr u32 kBuffers = type == KvType::f16 ? 0 : kDims > 128 || kProducts > 1 ? 1 : 2;
  static constexpr u32 kTileChunks = 2 * vector_bytes(type, kDims) * kTileSlots / kChunkBytes;
  static constexpr u32 kTilesRoom = kCtaWarps * kBuffers * kTileChunks;
  static constexpr u32 kOutRoom =
      (kCtaWarps * kColumns * kOutStride * static_cast<u32>(sizeof(f32)) + kChunkBytes - 1) /
      kChunkBytes;
  static constexpr u32 kRoom =
      kTilesRoom > kOutRoom ? kTilesRoom : kOutRoom;  // one, then the other
  static constexpr u64 kSharedBytes =
      shared_bytes_of(u64{kProducts} * kBlocks * 2 * kWarpLanes, sizeof(U32x4)) +
      3 * shared_bytes_of(kProducts * kColumns, sizeof(f32)) +
      2 * shared_bytes_of(kProducts * kCtaWarps * kColumns, sizeof(f32)) +
      shared_bytes_of(kRoom, sizeof(U32x4));
  using Args = GpuAttnArgs;

  struct Work {
    u32 kv_head, first_head, n_heads;
    u32 first_row, n_rows;  // of the launch
    u32 product_rows;       // whose heads are one product's columns
    u32 span;               // of the launch
    u32 begin, end;         // slots [begin, end), of the row that sees most
  };
  // A column of a product: q head `head` of a row of the CTA's.
  struct Column {
    u32 row, head;
    bool is_there;
  };

  // The memory that a CTA's threads share.
  struct Room {
    Shared<U32x4> q;     // [kProducts, 2 * kBlocks, 32 lanes]: a product's B, high and low
    Shared<f32> up;      // [kProducts, kColumns]: a power of two, which q was multiplied with
    Shared<f32> scales;  // [kProducts, kColumns]: of scores, less `up`
    Shared<u32> ends;    // [kProducts, kColumns]: of what a column sees; the span's begin: nothing
    Shared<f32> m, l;    // [kProducts, kCtaWarps, kColumns]
    Shared<U32x4> tiles;
  };

  // A lane's part of K of a tile, slots group and group + 8.
  struct Keys {
    U32x4 of[kBlocks][2];
  };
  // A strip of V, as the A of four products.
  struct Values {
    u32 of[kStrips][4][4];
  };
  // The state of one product: what a lane knows of its two columns.
  struct State {
    f32 m[2], l[2], o[4 * kStrips][4];
  };
  struct Weights {
    u32 high[2], low[2];  // a product's B
    f32 decay[2];
  };

  TARN_DEVICE static u32 slot_bytes(const Args& args) {
    return 2 * vector_bytes(type, args.pages.head_dim);
  }
  TARN_DEVICE static Column column_at(const Work& work, u32 product, u32 column) {
    const u32 row = column / work.n_heads, in_launch = product * work.product_rows + row;
    return {in_launch, column % work.n_heads, row < work.product_rows && in_launch < work.n_rows};
  }
  // The end of what a row of the CTA sees of the span; its begin where that is nothing.
  TARN_DEVICE static u32 end_of(const Args& args, const Work& work, u32 row) {
    const u32 end = args.visible[work.kv_head * args.visible_stride + work.first_row + row];
    if (end > work.begin + kGpuSpanSlots) return work.begin + kGpuSpanSlots;
    return end > work.begin ? end : work.begin;
  }
  TARN_DEVICE static Shared<U32x4> tile_of(Cta& cta, const Room& room, u32 slot) {
    if constexpr (kBuffers == 0) return room.tiles;
    const u32 buffer = kBuffers == 2 ? slot / kStepSlots % 2 : 0;
    return room.tiles.part((cta.warp() * kBuffers + buffer) * kTileChunks, kTileChunks);
  }
  TARN_DEVICE static const u8* tile_address(const Args& args, const Work& work, u32 slot) {
    return slot_address(args.pages, work.first_row, work.kv_head, slot);
  }

  // Asks for the tile from `slot` on, into shared memory.
  TARN_DEVICE static void fetch(Cta& cta, const Args& args, const Work& work, const Room& room,
                                u32 slot) {
    const Shared<U32x4> tile = tile_of(cta, room, slot);
    const u8* source = tile_address(args, work, slot);
    const u32 n_chunks = slot_bytes(args) * kTileSlots / kChunkBytes;
    for (u32 c = cta.lane(); c < n_chunks; c += kWarpLanes) {
      cta.copy_async(tile, c, source + u64{c} * kChunkBytes);
    }
    cta.copy_commit();
  }

  TARN_DEVICE static void take_keys(Cta& cta, const Args& args, const Work& work, const Room& room,
                                    u32 slot, Keys& keys) {
    const u32 head_dim = args.pages.head_dim, group = group_of(cta), within = within_of(cta);
    const u8* source = nullptr;
    if constexpr (type == KvType::f16) {
      source = tile_address(args, work, slot) + group * slot_bytes(args) + within * kChunkBytes;
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

  // Slots 2 * within, the next, and those 8 behind them. Slots from n on are not there: the last
  // one stands for them, with p = 0.
  TARN_DEVICE static void take_values(Cta& cta, const Args& args, const Work& work,
                                      const Room& room, u32 slot, u32 n, Values& values) {
    const u32 head_dim = args.pages.head_dim, group = group_of(cta), within = within_of(cta);
    const u32 vector = vector_bytes(type, head_dim);
    const u8* tile = nullptr;
    if constexpr (type == KvType::f16) {
      tile = tile_address(args, work, slot) + group * kChunkBytes;
    }
    u32 bytes[4];
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) {
      const u32 there = 2 * within + i % 2 + i / 2 * 8;
      bytes[i] = (there < n ? there : n - 1) * slot_bytes(args) + vector;
    }
    TARN_UNROLL(kStrips) for (u32 s = 0; s < kStrips; ++s) {
      U32x4 v[4] = {};
      TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) {
        if (64 * s + 8 * group >= head_dim) continue;
        if constexpr (type == KvType::f16) {
          v[i] = load_once<U32x4>(tile + bytes[i] + s * 128);
        } else {
          v[i] = eight_f16<type>(tile_of(cta, room, slot).template as<u32>(), bytes[i],
                                 2 * s + group / 4, group % 4);
        }
      }
      constexpr u32 kEven = 0x5410, kOdd = 0x7632;
      TARN_UNROLL(4) for (u32 j = 0; j < 4; ++j) {
        values.of[s][j][0] = permute_bytes(v[0].w[j], v[1].w[j], kEven);
        values.of[s][j][1] = permute_bytes(v[0].w[j], v[1].w[j], kOdd);
        values.of[s][j][2] = permute_bytes(v[2].w[j], v[3].w[j], kEven);
        values.of[s][j][3] = permute_bytes(v[2].w[j], v[3].w[j], kOdd);
      }
    }
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 head_chunks = (args.n_group_heads + kColumns - 1) / kColumns;
    const u32 row_chunks = row_chunks_of(args);
    Work work;
    // Rows first: those of a prompt read the same span, and the L2 keeps it for them.
    work.product_rows = product_rows(args);
    work.first_row = cta.block() % row_chunks * kProducts * work.product_rows;
    work.span = cta.block() / row_chunks;
    work.kv_head = cta.block_y() / head_chunks;
    work.first_head = cta.block_y() % head_chunks * kColumns;
    work.n_heads = args.n_group_heads - work.first_head;
    if (work.n_heads > kColumns) work.n_heads = kColumns;
    const u32 n_rows = load<u32>(args.n_rows);
    if (work.first_row >= n_rows) return;
    work.n_rows = n_rows - work.first_row;
    if (work.n_rows > kProducts * work.product_rows) {
      work.n_rows = kProducts * work.product_rows;
    }
    work.begin = (args.span_begin + work.span) * kGpuSpanSlots;
    work.end = work.begin;
    for (u32 row = 0; row < work.n_rows; ++row) {
      const u32 end = end_of(args, work, row);
      if (end > work.end) work.end = end;
    }
    if (work.end == work.begin) return;

    const Room room{.q = cta.shared<U32x4>(kProducts * kBlocks * 2 * kWarpLanes),
                    .up = cta.shared<f32>(kProducts * kColumns),
                    .scales = cta.shared<f32>(kProducts * kColumns),
                    .ends = cta.shared<u32>(kProducts * kColumns),
                    .m = cta.shared<f32>(kProducts * kCtaWarps * kColumns),
                    .l = cta.shared<f32>(kProducts * kCtaWarps * kColumns),
                    .tiles = cta.shared<U32x4>(kRoom)};
    attend(cta, args, work, room);
  }

  // Rows whose q heads are one product's columns. Only those of one sequence read the same K.
  static constexpr TARN_DEVICE u32 product_rows(const Args& args) {
    return kProducts == 1 || args.n_group_heads > kColumns ? 1 : kColumns / args.n_group_heads;
  }
  static constexpr TARN_DEVICE u32 row_chunks_of(const Args& args) {
    const u32 rows = kProducts * product_rows(args);
    return (args.rows_max + rows - 1) / rows;
  }

  TARN_DEVICE static void attend(Cta& cta, const Args& args, const Work& work, const Room& room) {
    constexpr bool kFetches = type != KvType::f16;
    constexpr bool kAhead = !kFetches && kProducts == 1;  // keys are asked for a tile early
    const u32 first = work.begin + cta.warp() * kTileSlots;
    Keys keys;
    if (first < work.end) {
      if constexpr (kAhead) take_keys(cta, args, work, room, first, keys);
      if constexpr (kFetches) fetch(cta, args, work, room, first);
    }
    State states[kProducts] = {};
    TARN_UNROLL(kProducts) for (u32 i = 0; i < kProducts; ++i) {
      states[i].m[0] = states[i].m[1] = kNoScore;
    }
    take_queries(cta, args, work, room);
    for (u32 slot = first; slot < work.end; slot += kStepSlots) {
      const u32 next = slot + kStepSlots;
      const u32 n = work.end - slot < kTileSlots ? work.end - slot : kTileSlots;
      if constexpr (kFetches) {
        if (kBuffers == 2 && next < work.end) {
          fetch(cta, args, work, room, next);
          cta.copy_wait<1>();
        } else {
          cta.copy_wait<0>();
        }
        cta.sync_warp();  // every lane's part of the tile has arrived
      }
      if constexpr (!kAhead) take_keys(cta, args, work, room, slot, keys);
      f32 s[kProducts][4];
      TARN_UNROLL(kProducts) for (u32 i = 0; i < kProducts; ++i) {
        score(cta, args, room, i, keys, s[i]);
      }
      if constexpr (kProducts > 1 && !kFetches) cta.sync_warp();  // V is not asked for too early
      Values values;
      take_values(cta, args, work, room, slot, n, values);
      if constexpr (kAhead) {
        if (next < work.end) take_keys(cta, args, work, room, next, keys);
      }
      if constexpr (kFetches) {
        cta.sync_warp();  // all have read the tile, which another may replace
        if (kBuffers == 1 && next < work.end) fetch(cta, args, work, room, next);
      }
      TARN_UNROLL(kProducts) for (u32 i = 0; i < kProducts; ++i) {
        if constexpr (kProducts > 1) cta.sync_warp();  // one product's weights at a time
        const Weights weights = weigh(cta, room, i, s[i], slot, states[i]);
        add_values(cta, values, weights, states[i].o);
      }
    }
    merge_warps(cta, args, work, room, states);
  }

  TARN_DEVICE static const f32* query_of(const Args& args, const Work& work, const Column& column) {
    const u32 head = work.kv_head * args.n_group_heads + work.first_head + column.head;
    return args.q + (work.first_row + column.row) * args.q_stride + u64{head} * args.pages.head_dim;
  }

  // q as the products' B, with zeros for columns and dims that are not there. A power of two brings
  // a head's largest element near 2^13: f16 has the same bits of any q.
  TARN_DEVICE static void take_queries(Cta& cta, const Args& args, const Work& work,
                                       const Room& room) {
    const u32 head_dim = args.pages.head_dim;
    for (u32 at = cta.warp(); at < kProducts * kColumns; at += kCtaWarps) {
      const Column column = column_at(work, at / kColumns, at % kColumns);
      const f32* q = query_of(args, work, column);
      u32 largest = 0;  // |q| as bits, a NaN above all
      for (u32 i = cta.lane(); column.is_there && i < head_dim; i += kWarpLanes) {
        const u32 size = bits_of(load<f32>(q + i)) & 0x7fffffffu;
        largest = size > largest ? size : largest;
      }
      largest = max_warp(cta, largest);
      if (cta.lane() != 0) continue;
      const u32 field = largest >> 23, exponent = field < 14 ? 14 : field > 254 ? 254 : field;
      room.up[at] = float_of((267 - exponent) << 23);
      room.scales[at] = args.scale * float_of((exponent - 13) << 23);
      room.ends[at] = column.is_there ? end_of(args, work, column.row) : work.begin;
    }
    cta.barrier();  // every column's power of two is there
    constexpr u32 kOfProduct = kBlocks * 2 * kWarpLanes;
    for (u32 i = cta.thread(); i < kProducts * kOfProduct; i += kThreads) {
      const u32 product = i / kOfProduct, part = i / kWarpLanes % (2 * kBlocks);
      const u32 at = i % kWarpLanes / 4, dim = part / 2 * 32 + i % 4 * 8 + part % 2 * 4;
      const Column column = column_at(work, product, at);
      F32x4 four{};
      if (column.is_there && dim < head_dim) {
        const f32 up = room.up[product * kColumns + at];
        const f32* its = query_of(args, work, column) + dim;
        TARN_UNROLL(4) for (u32 e = 0; e < 4; ++e) four.v[e] = load<f32>(its + e) * up;
      }
      const HighLow first = high_low(four.v[0], four.v[1]);
      const HighLow second = high_low(four.v[2], four.v[3]);
      room.q[i] = U32x4{{first.high, second.high, first.low, second.low}};
    }
    cta.barrier();  // q is there
  }

  // Scores slots group and group + 8, two columns each.
  TARN_DEVICE static void score(Cta& cta, const Args& args, const Room& room, u32 product,
                                const Keys& keys, f32 (&s)[4]) {
    f32 high[4] = {}, low[4] = {};
    TARN_UNROLL(kBlocks) for (u32 b = 0; b < kBlocks; ++b) {
      if (32 * b >= args.pages.head_dim) continue;  // the whole CTA
      TARN_UNROLL(2) for (u32 half = 0; half < 2; ++half) {
        const u32 part = (product * kBlocks + b) * 2 + half;
        const U32x4 q = room.q[part * kWarpLanes + cta.lane()];
        const u32 k[4] = {keys.of[b][0].w[2 * half], keys.of[b][1].w[2 * half],
                          keys.of[b][0].w[2 * half + 1], keys.of[b][1].w[2 * half + 1]};
        cta.mma_f16(high, k, {q.w[0], q.w[1]});
        cta.mma_f16(low, k, {q.w[2], q.w[3]});
      }
    }
    TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) s[i] = high[i] + low[i];
  }

  // One step of the softmax over the tile from `slot` on. Of a column that sees none of it, nothing
  // changes: its decay is 1, its p are 0.
  TARN_DEVICE static Weights weigh(Cta& cta, const Room& room, u32 product, const f32 (&scores)[4],
                                   u32 slot, State& state) {
    const u32 first_slot = slot + group_of(cta), second_slot = first_slot + 8;
    f32 p[4];
    Weights weights;
    TARN_UNROLL(2) for (u32 c = 0; c < 2; ++c) {
      const f32 scale = room.scales[product * kColumns + 2 * within_of(cta) + c];
      const u32 end = room.ends[product * kColumns + 2 * within_of(cta) + c];
      const bool sees_first = first_slot < end, sees_second = second_slot < end;
      const f32 first = sees_first ? scores[c] * scale : kNoScore;
      const f32 second = sees_second ? scores[c + 2] * scale : kNoScore;
      f32 max = second > first ? second : first;
      for (u32 mask = kWarpLanes / 2; mask >= 4; mask /= 2) {
        const f32 other = cta.shuffle_xor(max, mask);
        max = other > max ? other : max;
      }
      const f32 next = state.m[c] > max ? state.m[c] : max;
      weights.decay[c] = state.m[c] == kNoScore ? 0.0f : exp_f32(state.m[c] - next);
      p[c] = sees_first ? exp_f32(first - next) : 0.0f;
      p[c + 2] = sees_second ? exp_f32(second - next) : 0.0f;
      state.m[c] = next;
      state.l[c] = state.l[c] * weights.decay[c] + (p[c] + p[c + 2]);
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
    TARN_UNROLL(4 * kStrips) for (u32 j = 0; j < 4 * kStrips; ++j) {
      TARN_UNROLL(4) for (u32 i = 0; i < 4; ++i) o[j][i] = o[j][i] * weights.decay[i % 2];
      cta.mma_f16(o[j], values.of[j / 4][j % 4], weights.high);
      cta.mma_f16(o[j], values.of[j / 4][j % 4], weights.low);
    }
  }

  // The warps' states become the span's, in ascending order of warps.
  TARN_DEVICE static void merge_warps(Cta& cta, const Args& args, const Work& work,
                                      const Room& room, State (&states)[kProducts]) {
    const u32 column = 2 * within_of(cta), group = group_of(cta);
    TARN_UNROLL(kProducts) for (u32 i = 0; i < kProducts; ++i) {
      TARN_UNROLL(2) for (u32 c = 0; c < 2; ++c) {
        f32 sum = states[i].l[c];
        for (u32 mask = kWarpLanes / 2; mask >= 4; mask /= 2) {
          sum = sum + cta.shuffle_xor(sum, mask);
        }
        if (group != 0) continue;
        room.m[(i * kCtaWarps + cta.warp()) * kColumns + column + c] = states[i].m[c];
        room.l[(i * kCtaWarps + cta.warp()) * kColumns + column + c] = sum;
      }
    }
    TARN_UNROLL(kProducts) for (u32 i = 0; i < kProducts; ++i) {
      cta.barrier();  // every warp's m and l are there; no tile, nor the last product's o, is read
      give_parts(cta, args, room, i, states[i]);
      cta.barrier();  // every warp's o is there
      store_sums(cta, args, work, room, i);
    }
  }

  // The warp's o, as the others' scale has it: [kCtaWarps, kColumns, kOutStride].
  TARN_DEVICE static void give_parts(Cta& cta, const Args& args, const Room& room, u32 product,
                                     const State& state) {
    const Shared<f32> out = room.tiles.template as<f32>();
    TARN_UNROLL(2) for (u32 c = 0; c < 2; ++c) {
      const u32 column = 2 * within_of(cta) + c;
      const f32 factor = factor_of(state.m[c], max_of(room, product, column)) * (1.0f / kOfP);
      const u32 at = (cta.warp() * kColumns + column) * kOutStride;
      TARN_UNROLL(4 * kStrips) for (u32 j = 0; j < 4 * kStrips; ++j) {
        const u32 dim = j / 4 * 64 + 8 * group_of(cta) + j % 4 * 2;
        if (dim >= args.pages.head_dim) continue;
        out[at + dim] = state.o[j][c] * factor;
        out[at + dim + 1] = state.o[j][c + 2] * factor;
      }
    }
  }

  TARN_DEVICE static void store_sums(Cta& cta, const Args& args, const Work& work, const Room& room,
                                     u32 product) {
    const Shared<f32> out = room.tiles.template as<f32>();
    const u32 head_dim = args.pages.head_dim;
    for (u32 at = cta.warp(); at < kColumns; at += kCtaWarps) {
      const Column column = column_at(work, product, at);
      // A row that sees nothing of the span has no part in it.
      const u32 end = room.ends[product * kColumns + at];
      if (end == work.begin) continue;
      f32* partial = partial_of(args, work, column);
      for (u32 dim = cta.lane(); dim < head_dim; dim += kWarpLanes) {
        f32 sum = out[at * kOutStride + dim];
        TARN_UNROLL(kCtaWarps) for (u32 w = 1; w < kCtaWarps; ++w) {
          sum = sum + out[(w * kColumns + at) * kOutStride + dim];
        }
        store(partial + dim, sum);
      }
      if (cta.lane() != 0) continue;
      const f32 max = max_of(room, product, at);
      f32 sum = 0.0f;
      TARN_UNROLL(kCtaWarps) for (u32 w = 0; w < kCtaWarps; ++w) {
        const u32 of_warp = (product * kCtaWarps + w) * kColumns + at;
        const f32 its_m = room.m[of_warp], its_l = room.l[of_warp];
        sum = fma(factor_of(its_m, max), its_l, sum);
      }
      store(partial + head_dim, max);
      store(partial + head_dim + 1, sum);
    }
  }

  // A warp that had no tile has no score.
  TARN_DEVICE static f32 factor_of(f32 m, f32 max) {
    return m == kNoScore ? 0.0f : exp_f32(m - max);
  }
  TARN_DEVICE static f32 max_of(const Room& room, u32 product, u32 column) {
    f32 max = kNoScore;
    TARN_UNROLL(kCtaWarps) for (u32 w = 0; w < kCtaWarps; ++w) {
      const f32 other = room.m[(product * kCtaWarps + w) * kColumns + column];
      max = other > max ? other : max;
    }
    return max;
  }

  TARN_DEVICE static f32* partial_of(const Args& args, const Work& work, const Column& column) {
    const u32 n_heads = args.pages.n_kv_heads * args.n_group_heads;
    const u32 head = work.kv_head * args.n_group_heads + work.first_head + column.head;
    const u64 row = work.first_row + column.row;
    const u64 at = (row * n_heads + head) * args.spans_max + work.span;
    return args.partial + at * (u64{args.pages.head_dim} + 2);
  }
};

template <KvType type, u32 kDims, u32 kProducts>
void attend_with(const GpuAttnArgs& args, GpuStream* stream) {
  const u32 head_chunks = (args.n_group_heads + kColumns - 1) / kColumns;
  using Kernel = AttendSpan<type, kDims, kProducts>;
  launch<Kernel>({.n_ctas = args.spans_max * Kernel::row_chunks_of(args),
                  .n_ctas_y = args.pages.n_kv_heads * head_chunks,
                  .shared_bytes = Kernel::kSharedBytes},
                 stream, args);
}

template <KvType type, u32 kDims>
void attend_dims(const GpuAttnArgs& args, GpuStream* stream) {
  constexpr u32 kMany = many_products(kDims);
  if (args.rows_share && args.rows_max > 1) return attend_with<type, kDims, kMany>(args, stream);
  attend_with<type, kDims, 1>(args, stream);
}

template <KvType type>
void attend_type(const GpuAttnArgs& args, GpuStream* stream) {
  if (args.pages.head_dim <= 64) return attend_dims<type, 64>(args, stream);
  if (args.pages.head_dim <= 128) return attend_dims<type, 128>(args, stream);
  return attend_dims<type, 256>(args, stream);
}

template <KvType type, u32 kDims>
void tell_dims(const KernelSink& sink) {
  constexpr u32 kMany = many_products(kDims);
  tell<AttendSpan<type, kDims, 1>>(sink);
  if constexpr (kMany > 1) tell<AttendSpan<type, kDims, kMany>>(sink);
}

template <KvType type>
void tell_type(const KernelSink& sink) {
  tell_dims<type, 64>(sink);
  tell_dims<type, 128>(sink);
  tell_dims<type, 256>(sink);
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
