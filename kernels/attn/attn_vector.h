// The body of attn.h for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
//
// A (row, head) pair is a "state". Per page: scores of all states, weights of all states, values of
// all states. A block has up to 4 states, so that a K or V register is used 4 times and their sums
// hide the latency of an addition. In the scores a lane is a slot: K is transposed into a tile of
// 32 (16) slots that stays in L1, so a dot product needs no sum over lanes. Of f16 the tile is f32;
// of q8_0 and q4_0 it is bytes, four dims of a slot in a word. V is widened into a tile of the
// page. If there is only one block (decode), V and K of f16 are widened in registers, each where it
// is used.
// Meanwhile the next page's lines are prefetched: pages are not contiguous, and the hardware's
// prefetcher reached a third of the speed.
#pragma once

#include <cstring>

#include "kernels/attn/attn.h"
#include "kernels/common/exp_vector.h"
#include "kernels/quant/activations.h"

namespace tarn::kernels {
namespace {

template <class F>
class AttnVector {
 public:
  explicit AttnVector(const AttnArgs& args)
      : args_(args),
        n_states_(args.n_rows * args.n_group_heads),
        decode_(n_states_ <= kStatesMax && args.head_dim % 16 == 0),
        slot_bytes_(2 * kv_vector_bytes(args.type, args.head_dim)),
        dims_(round_up(args.head_dim)),
        ask_load_bytes_(slot_bytes_ * kRows * kHalves / args.head_dim / 4),
        ask_score_bytes_(slot_bytes_ * kTileSlots / args.head_dim / 2),
        ask_value_bytes_(slot_bytes_ * kPanel / args.head_dim / 4) {
    const u64 page_tokens = args.page_tokens;
    const u64 n_states = n_states_;
    k_ = static_cast<f32*>(args.scratch);
    v_ = k_ + u64{page_tokens > kTileSlots ? page_tokens : kTileSlots} * dims_;
    p_ = v_ + page_tokens * ((dims_ + kPanel - 1) / kPanel * kPanel);
    o_ = args.state != nullptr ? args.state : p_ + n_states * page_tokens;
    l_ = o_ + n_states * dims_;
    m_ = l_ + n_states * kAttnLanes;
    c_ = p_ + n_states * (page_tokens + dims_ + kAttnTailFloats);
    // m_ and c_ have n_states floats each, and the arrays before them an even number: aligned for
    // pointers.
    blocks_ = reinterpret_cast<Block*>(c_ + n_states);
    // A state has 32 floats, of which 18 are taken, and a scratch is one of 16 states at least.
    static_assert(sizeof(Block) <= 14 * sizeof(f32) * kStatesMax);
    query_ = reinterpret_cast<i32*>(blocks_ + (n_states + kStatesMax - 1) / kStatesMax);
    query_scales_ =
        reinterpret_cast<f32*>(query_ + n_states * dims_ / kBlockElems * F::kQueryWords);
    query_sums_ = reinterpret_cast<i32*>(query_scales_ + n_states * dims_ / kBlockElems);
  }

  void run() {
    u32 visible_max = 0;
    for (u32 n = 0; n < args_.n_rows; ++n) {
      visible_max = args_.visible[n] > visible_max ? args_.visible[n] : visible_max;
    }
    if (args_.slot_begin == 0) start();
    if (args_.type != KvType::f16) quantize_queries();
    const u32 end = visible_max < args_.slot_end ? visible_max : args_.slot_end;
    const u8* const* page = args_.pages;
    for (u32 begin = args_.slot_begin; begin < end; begin += args_.page_tokens, ++page) {
      const u32 left = end - begin;
      const bool last = left <= args_.page_tokens;
      ahead_ = last ? page[0] : page[1];
      attend_page(page[0], begin, last ? left : args_.page_tokens);
    }
    if (end < visible_max) return;
    for (u32 n = 0; n < args_.n_rows; ++n) {
      for (u32 h = 0; h < args_.n_group_heads; ++h) write_out(n, h);
    }
  }

 private:
  using V = typename F::V;
  using Words = typename F::Words;
  static constexpr u32 kParts = 16 / F::kLanes;  // registers for 16 lanes
  static constexpr u32 kStatesMax = 4;           // states at a time
  static constexpr u32 kTile = 2;                // registers of slots in a tile of K
  static constexpr u32 kTileSlots = kTile * F::kLanes;
  // Slots at a time, where K are bytes: a register of i32 and one of f32 each for 4 states.
  static constexpr u32 kDotTile = F::kLanes == 16 ? kTile : 1;
  static constexpr u32 kWordBytes = 4 * F::kLanes;          // of four dims of kLanes slots
  static constexpr u32 kPanel = F::kLanes == 16 ? 64 : 16;  // dims of a tile of V that lie together
  static constexpr f32 kNone = -__builtin_inff();
  // A transposition reads 16 bytes a slot, of halves so many, and 16 slots of halves.
  static constexpr u32 kChunkBytes = 16, kHalves = 8, kRows = 16;
  static_assert(kTileSlots % kRows == 0 && kRows % F::kLanes == 0);
  static constexpr u32 kBlockElems = 32;
  static constexpr u32 kQ8Bytes = 34;
  static constexpr u32 kQ4Bytes = 18;

  // States whose rows see a part of the page, and how many slots; equally many for all in an even
  // block.
  struct Block {
    u32 n;
    bool even;
    u32 states[kStatesMax];
    u32 n_slots[kStatesMax];
    const f32* q[kStatesMax];
  };

  void start() {
    for (u64 i = 0; i < u64{n_states_} * dims_; ++i) o_[i] = 0.0f;
    for (u64 i = 0; i < u64{n_states_} * 16; ++i) l_[i] = 0.0f;
    for (u32 s = 0; s < n_states_; ++s) m_[s] = kNone;
  }

  void quantize_queries() {
    const u32 n_elems = args_.n_group_heads * args_.head_dim;  // of a row
    i8* const bytes = reinterpret_cast<i8*>(query_sums_ + n_states_ * args_.head_dim / 16);
    quantize_activations_avx2({.x = args_.q,
                               .x_stride = args_.q_stride,
                               .q = bytes,
                               .scales = query_scales_,
                               .sums = query_sums_,
                               .n_rows = args_.n_rows,
                               .k = n_elems});
    const u32 n = n_states_ * args_.head_dim / kBlockElems;
    for (u32 b = 0; b < n; ++b)
      F::store_query(query_ + b * F::kQueryWords, bytes + b * kBlockElems);
  }

  static u32 round_up(u32 n) { return (n + 15) / 16 * 16; }

  void attend_page(const u8* page, u32 begin, u32 n_slots) {
    make_blocks(begin);
    // A tile may carry slots that no row sees: lanes stay apart, and compute_weights drops them.
    for (u32 t = 0; t < n_slots;) {
      const u32 n_tile = args_.page_tokens - t < kTileSlots ? kRows : kTileSlots;
      score_tile(page + t * slot_bytes_, t, n_tile);
      t += n_tile;
    }
    for (u32 b = 0; b < n_blocks_; ++b) compute_weights(blocks_[b]);
    const u8* v = page + slot_bytes_ / 2;
    if (args_.type != KvType::f16) {
      add_values_of(byte_values(v, n_slots), n_slots);
    } else if (dims_ == args_.head_dim) {
      add_values_of(HalfValues{v, slot_bytes_}, n_slots);
    } else {
      load_odd_v(v, n_slots);
    }
  }

  void make_blocks(u32 begin) {
    n_blocks_ = 0;
    u32 n_in_block = kStatesMax;
    for (u32 n = 0; n < args_.n_rows; ++n) {
      if (args_.visible[n] <= begin) continue;
      const u32 left = args_.visible[n] - begin;
      const u32 n_slots = left < args_.page_tokens ? left : args_.page_tokens;
      for (u32 h = 0; h < args_.n_group_heads; ++h) {
        if (n_in_block == kStatesMax) {
          blocks_[n_blocks_].even = true;
          n_blocks_ += 1;
          n_in_block = 0;
        }
        Block& block = blocks_[n_blocks_ - 1];
        block.states[n_in_block] = n * args_.n_group_heads + h;
        block.n_slots[n_in_block] = n_slots;
        block.q[n_in_block] = args_.q + n * args_.q_stride + u64{h} * args_.head_dim;
        block.even = block.even && n_slots == block.n_slots[0];
        n_in_block += 1;
        block.n = n_in_block;
      }
    }
  }

  // Calls body with n as a constant, so that its sums stay in registers.
  template <class Body>
  static void with_constant(u32 n, Body body) {
    switch (n) {
      case 1:
        return body(Constant<1>{});
      case 2:
        return body(Constant<2>{});
      case 3:
        return body(Constant<3>{});
      default:
        return body(Constant<4>{});
    }
  }
  template <u32 kValue>
  struct Constant {
    static constexpr u32 value = kValue;
  };

  // --- scores ---

  // Slots [t, t + n_tile) of the page, which begin at `slots`; n_tile is kRows or kTileSlots.
  void score_tile(const u8* slots, u32 t, u32 n_tile) {
    if (args_.type != KvType::f16) return score_bytes(slots, t, n_tile / F::kLanes);
    if (decode_) {
      load_halves(slots, n_tile);
      return score_block(blocks_[0], t, n_tile / F::kLanes, HalfTile{});
    }
    load_k(slots, n_tile);
    for (u32 b = 0; b < n_blocks_; ++b) {
      const Block& block = blocks_[b];
      ask_ahead(n_tile * slot_bytes_ / n_blocks_);
      score_block(block, t, n_tile / F::kLanes, Tile{});
    }
  }

  template <class Layout>
  void score_block(const Block& block, u32 t, u32 n_parts, const Layout& layout) {
    with_constant(block.n, [&](auto n) {
      if constexpr (kTileSlots > kRows) {
        if (n_parts < kTile) return score<n.value, 1>(block, t, layout);
      }
      score<n.value, kTile>(block, t, layout);
    });
  }

  // Where one block reads a tile, its K stay f16: [head_dim, n_tile].
  void load_halves(const u8* slots, u32 n_tile) {
    u8* const tile = reinterpret_cast<u8*>(k_);
    const u64 column_bytes = 2 * n_tile;
    for (u32 part = 0; part < n_tile; part += kRows, slots += kRows * slot_bytes_) {
      u8* k = tile + 2 * part;
      for (u32 i = 0; i < args_.head_dim; i += kHalves, k += kHalves * column_bytes) {
        ask_ahead(ask_load_bytes_);
        F::transpose_halves(slots + 2 * i, slot_bytes_, k, column_bytes);
      }
    }
  }

  // Scores words of four dims of kLanes slots of q8_0 or q4_0; behind them the scales of each block
  // of 32 dims, f32.
  void score_bytes(const u8* slots, u32 t, u32 n_parts) {
    const u32 half_bytes = args_.type == KvType::q8_0 ? kChunkBytes : 0;
    const u32 block_bytes = args_.type == KvType::q8_0 ? kQ8Bytes : kQ4Bytes;
    u8* const tile = reinterpret_cast<u8*>(k_);
    f32* const scales = k_ + u64{args_.head_dim} * n_parts * F::kLanes / sizeof(f32);
    const u64 ask_bytes = n_parts * F::kLanes * slot_bytes_ * kBlockElems / args_.head_dim;
    for (u32 part = 0; part < n_parts; ++part, slots += F::kLanes * slot_bytes_) {
      const u8* column = slots;
      u8* k = tile + part * kWordBytes;
      for (u32 i = 0; i < args_.head_dim; i += kBlockElems, column += block_bytes) {
        if (decode_) ask_ahead(ask_bytes / kTile / 4);
        Words words[4];
        F::load_columns(column, slot_bytes_, words);
        V scale[2];  // the first two bytes of a block are its scale
        F::widen_f16(words[0], scale);
        F::store(scales + (i / kBlockElems * n_parts + part) * F::kLanes, scale[0]);
        F::load_columns(column + 2, slot_bytes_, words);
        for (u32 half = 0; half < 2; ++half) {
          if (half * half_bytes > 0) F::load_columns(column + 2 + half_bytes, slot_bytes_, words);
          for (const Words four : words) {
            F::store_bytes(k, half_bytes > 0 ? four : F::nibbles(four, half));
            k += n_parts * kWordBytes;
          }
        }
      }
    }
    for (u32 b = 0; b < n_blocks_; ++b) {
      const u64 ask_part_bytes = (decode_ ? ask_bytes / 2 : ask_bytes / n_blocks_) / n_parts;
      const u32 n_together = n_parts < kDotTile ? 1 : kDotTile;
      for (u32 part = 0; part < n_parts; part += n_together) {
        with_constant(blocks_[b].n, [&](auto n) {
          const ByteTile at{tile, scales, part, n_parts};
          n_together == 1 ? dot<n.value, 1>(blocks_[b], t, at, ask_part_bytes)
                          : dot<n.value, kDotTile>(blocks_[b], t, at, ask_part_bytes * kDotTile);
        });
      }
    }
  }
  // A tile of bytes, from register `part` of slots on.
  struct ByteTile {
    const u8* k;        // [head_dim / 4, n_parts, kLanes] words
    const f32* scales;  // [head_dim / 32, n_parts, kLanes]
    u32 part, n_parts;
  };

  // The dot products of 32 dims are exact integers; then their scales.
  template <u32 kStates, u32 kRegisters>
  [[gnu::noinline]] void dot(const Block& block, u32 t, const ByteTile& tile, u64 ask_bytes) {
    V sums[kStates][kRegisters];
    clear(sums);
    const u32 n_blocks = args_.head_dim / kBlockElems;
    const u8* k = tile.k + tile.part * kWordBytes;
    const f32* scales = tile.scales + tile.part * F::kLanes;
    for (u32 b = 0; b < n_blocks; ++b, scales += tile.n_parts * F::kLanes) {
      ask_ahead(ask_bytes);
      Words dots[kStates][kRegisters];
      const i32* q[kStates];
      for (u32 r = 0; r < kStates; ++r) {
        const u64 query_block = u64{block.states[r]} * n_blocks + b;
        q[r] = query_ + query_block * F::kQueryWords;
        const i32* q_sums = query_sums_ + 2 * query_block;
        for (Words& dot : dots[r]) dot = F::start_dot(q_sums[0] + q_sums[1]);
      }
#pragma GCC unroll 8
      for (u32 four = 0; four < kBlockElems / 4; ++four, k += tile.n_parts * kWordBytes) {
        for (u32 j = 0; j < kRegisters; ++j) {
          const auto bytes = F::load_bytes(k + j * kWordBytes);
          for (u32 r = 0; r < kStates; ++r) dots[r][j] = F::add_dot(dots[r][j], bytes, q[r] + four);
        }
      }
      for (u32 r = 0; r < kStates; ++r) {
        const V q_scale = F::set(query_scales_[u64{block.states[r]} * n_blocks + b]);
        for (u32 j = 0; j < kRegisters; ++j) {
          const V scale = F::mul(q_scale, F::load(scales + j * F::kLanes));
          sums[r][j] = F::fma(F::from_words(dots[r][j]), scale, sums[r][j]);
        }
      }
    }
    store_scores<kStates, kRegisters>(block, t + tile.part * F::kLanes, sums);
  }

  // Prefetches lines of the next page. All loops over the page call it, spread over their time,
  // because a burst would fill the queue of misses and stall.
  void ask_ahead(u64 n_bytes) {
    for (u64 i = 0; i < n_bytes; i += 64) F::prefetch(ahead_ + i);
    ahead_ += n_bytes;
  }

  // K of f16 as f32, [head_dim, n_tile].
  void load_k(const u8* slots, u32 n_tile) {
    for (u32 part = 0; part < n_tile; part += kRows, slots += kRows * slot_bytes_) {
      u32 i = 0;
      for (; i + kHalves <= args_.head_dim; i += kHalves) {
        load_chunk(slots + 2 * i, slot_bytes_, kHalves, n_tile, k_ + i * n_tile + part);
      }
      if (i == args_.head_dim) continue;
      // The last 2, 4 or 6: a whole chunk would run past the last slot of the page.
      u8 rest[kRows * kChunkBytes] = {};
      const u32 n = args_.head_dim - i;
      for (u32 t = 0; t < kRows; ++t) {
        std::memcpy(rest + t * kChunkBytes, slots + t * slot_bytes_ + 2 * i, 2 * n);
      }
      load_chunk(rest, kChunkBytes, n, n_tile, k_ + i * n_tile + part);
    }
  }

  static void load_chunk(const u8* chunk, u64 stride, u32 n_dims, u64 n_tile, f32* k) {
    u8 columns[kHalves * 2 * kRows];
    F::transpose_halves(chunk, stride, columns, 2 * kRows);
    for (u32 i = 0; i < n_dims; ++i, k += n_tile) {
      for (u32 t = 0; t < kRows; t += F::kLanes) {
        F::store(k + t, F::load_f16(columns + 2 * (i * kRows + t)));
      }
    }
  }

  // A tile of K: load() is its register i, from element k on.
  struct Tile {
    static constexpr bool kAsk = false;
    static constexpr u32 kBytes = F::kLanes * sizeof(f32);  // of a register
    V load(const u8* k, u32 i) const {
      return F::load(reinterpret_cast<const f32*>(k + i * kBytes));
    }
  };
  struct HalfTile {
    static constexpr bool kAsk = true;
    static constexpr u32 kBytes = F::kLanes * 2;
    V load(const u8* k, u32 i) const { return F::load_f16(k + i * kBytes); }
  };

  // Not inlined, as dot().
  template <u32 kStates, u32 kRegisters, class Layout>
  [[gnu::noinline]] void score(const Block& block, u32 t, const Layout& layout) {
    V sums[kStates][kRegisters];
    clear(sums);
    const f32* q[kStates];
    for (u32 r = 0; r < kStates; ++r) q[r] = block.q[r];
    const u8* k = reinterpret_cast<const u8*>(k_);
    const u8* ahead = ahead_;
#pragma GCC unroll 2
    for (u32 i = 0; i < args_.head_dim; ++i, k += kRegisters * Layout::kBytes) {
      if (Layout::kAsk) F::prefetch(ahead);
      ahead += ask_score_bytes_;
      V slots[kRegisters];
      for (u32 j = 0; j < kRegisters; ++j) slots[j] = layout.load(k, j);
      for (u32 r = 0; r < kStates; ++r) {
        const V element = F::set(q[r][i]);
        for (u32 j = 0; j < kRegisters; ++j) {
          sums[r][j] = F::fma(element, slots[j], sums[r][j]);
        }
      }
    }
    if (Layout::kAsk) ahead_ = ahead;
    store_scores<kStates, kRegisters>(block, t, sums);
  }

  // Unrolled by hand: of a plain loop GCC makes a call to memset, and keeps the sums in memory.
  template <u32 kStates, u32 kRegisters>
  static void clear(V (&sums)[kStates][kRegisters]) {
#pragma GCC unroll 4
    for (u32 r = 0; r < kStates; ++r) {
#pragma GCC unroll 4
      for (u32 j = 0; j < kRegisters; ++j) sums[r][j] = F::zero();
    }
  }

  template <u32 kStates, u32 kRegisters>
  void store_scores(const Block& block, u32 t, const V (&sums)[kStates][kRegisters]) {
    const V scale = F::set(args_.scale);
#pragma GCC unroll 4
    for (u32 r = 0; r < kStates; ++r) {
      f32* p = p_ + u64{block.states[r]} * args_.page_tokens + t;
#pragma GCC unroll 4
      for (u32 j = 0; j < kRegisters; ++j) {
        F::store(p + j * F::kLanes, F::mul(sums[r][j], scale));
      }
    }
  }

  // --- weights: scores to p in place, and m, l, c of the state ---

  // The maxima of all states first, so that their dependency chains overlap.
  void compute_weights(const Block& block) {
    f32 m_before[kStatesMax];
    for (u32 r = 0; r < block.n; ++r) {
      f32& m = m_[block.states[r]];
      m_before[r] = m;
      const f32 page_max = max_score(scores(block, r), block.n_slots[r]);
      m = page_max > m ? page_max : m;
    }
    for (u32 r = 0; r < block.n; ++r) {
      const u32 state = block.states[r];
      f32 c = 1.0f;  // exp(0), exactly
      if (m_before[r] == kNone) {
        c = 0.0f;
      } else if (m_[state] != m_before[r]) {
        c = F::max_lane(exp_vector<F>(F::set(m_before[r] - m_[state])));
      }
      c_[state] = c;
      weigh(scores(block, r), block.n_slots[r], m_[state], c, l_ + u64{state} * 16);
    }
  }

  f32* scores(const Block& block, u32 r) { return p_ + u64{block.states[r]} * args_.page_tokens; }

  // A NaN score is ignored here, as in the generic body; its weight becomes NaN.
  static f32 max_score(const f32* scores, u32 n_slots) {
    V maxima = F::set(kNone);
    u32 t = 0;
    for (; t + F::kLanes <= n_slots; t += F::kLanes) maxima = F::max(F::load(scores + t), maxima);
    if (t < n_slots) {
      maxima = F::max(F::keep_first(F::load(scores + t), n_slots - t, kNone), maxima);
    }
    return F::max_lane(maxima);
  }

  static void weigh(f32* p, u32 n_slots, f32 m, f32 c, f32* l) {
    V lanes[kParts];
    for (V& part : lanes) part = F::zero();
    u32 t = 0;
    for (; t + 16 <= n_slots; t += 16) {
      for (u32 j = 0; j < kParts; ++j) {
        f32* at = p + t + j * F::kLanes;
        const V weights = exp_vector<F>(F::sub(F::load(at), F::set(m)));
        F::store(at, weights);
        lanes[j] = F::add(lanes[j], weights);
      }
    }
    for (u32 j = 0; j < kParts && t < n_slots; ++j, t += F::kLanes) {
      const V weights = exp_vector<F>(F::sub(F::load(p + t), F::set(m)));
      const V kept = F::keep_first(weights, n_slots - t, 0.0f);
      F::store(p + t, kept);
      lanes[j] = F::add(lanes[j], kept);
    }
    for (u32 j = 0; j < kParts; ++j) {
      const V before = F::load(l + j * F::kLanes);
      F::store(l + j * F::kLanes, F::fma(before, F::set(c), lanes[j]));
    }
  }

  // --- values: o = o * c + sum of p * v ---

  // Elements of V, from slot to slot: load(j) is register j behind the dim that at() chose, which
  // is a multiple of a panel, or of kLanes in the rest of a V that is no whole panel.
  struct TileValues {
    static constexpr bool kAsk = false;
    const f32* v;
    u64 panel_elems;
    TileValues at(u32 i) const { return {v + i / kPanel * panel_elems + i % kPanel, panel_elems}; }
    V load(u32 j) const { return F::load(v + j * F::kLanes); }
    void next() { v += kPanel; }
  };
  struct HalfValues {
    static constexpr bool kAsk = true;
    const u8* v;
    u64 slot_bytes;
    HalfValues at(u32 i) const { return {v + 2 * i, slot_bytes}; }
    V load(u32 j) const { return F::load_f16(v + 2 * j * F::kLanes); }
    void next() { v += slot_bytes; }
  };
  struct ByteValues {
    static constexpr bool kAsk = true;
    const u8* v;
    u64 slot_bytes, block_bytes;  // from one slot, or 32 dims, to the next
    const f32* scales;            // [head_dim / 32, page_tokens]
    u64 page_tokens;
    ByteValues at(u32 i) const {
      return {v + i / kBlockElems * block_bytes + i % kBlockElems, slot_bytes, block_bytes,
              scales + i / kBlockElems * page_tokens, page_tokens};
    }
    V load(u32 j) const {
      const u32 block = j * F::kLanes / kBlockElems, rest = j * F::kLanes % kBlockElems;
      return F::mul(F::set(scales[block * page_tokens]),
                    F::load_i8(v + block * block_bytes + rest));
    }
    void next() {
      v += slot_bytes;
      scales += 1;
    }
  };

  // The scales of a page's V as f32, and q4_0 as bytes, in the place of the tile of K.
  ByteValues byte_values(const u8* v, u32 n_slots) {
    const bool q8 = args_.type == KvType::q8_0;
    const u32 n_blocks = args_.head_dim / kBlockElems;
    const u64 page_tokens = args_.page_tokens;
    u8* const bytes = reinterpret_cast<u8*>(k_ + n_blocks * page_tokens);
    const u32 block_bytes = q8 ? kQ8Bytes : kQ4Bytes;
    for (u32 b = 0; b < n_blocks; ++b) {
      const u8* block = v + b * block_bytes;
      for (u32 t = 0; t < n_slots; t += F::kLanes) {
        Words words[4];
        F::load_columns(block + t * slot_bytes_, slot_bytes_, words);
        V scales[2];  // the first two bytes of a block are its scale
        F::widen_f16(words[0], scales);
        F::store(k_ + b * page_tokens + t, scales[0]);
      }
      for (u32 t = 0; !q8 && t < n_slots; ++t, block += slot_bytes_) {
        F::unpack_i4(block + 2, bytes + (t * n_blocks + b) * kBlockElems);
      }
    }
    if (q8) return {v + 2, slot_bytes_, kQ8Bytes, k_, page_tokens};
    return {bytes, args_.head_dim, kBlockElems, k_, page_tokens};
  }

  // In decode where it lies, else by way of a tile.
  template <class Values>
  void add_values_of(const Values& values, u32 n_slots) {
    if (decode_) return add_values(values);
    const u64 panel_elems = u64{args_.page_tokens} * kPanel;
    for (u32 i = 0; i < dims_; i += F::kLanes) {
      Values from = values.at(i);
      f32* tile = v_ + i / kPanel * panel_elems + i % kPanel;
      for (u32 t = 0; t < n_slots; ++t, tile += kPanel, from.next()) F::store(tile, from.load(0));
    }
    add_values(TileValues{v_, panel_elems});
  }

  // V of f16 whose last register would run past the last slot of the page; zeros behind head_dim.
  void load_odd_v(const u8* v, u32 n_slots) {
    const u64 panel_elems = u64{args_.page_tokens} * kPanel;
    for (u32 t = 0; t < n_slots; ++t, v += slot_bytes_) {
      for (u32 i = 0; i < dims_; i += F::kLanes) {
        f32 last[F::kLanes] = {};
        const bool whole = i + F::kLanes <= args_.head_dim;
        for (u32 x = i; !whole && x < args_.head_dim; ++x) last[x - i] = F::f16_at(v + 2 * x);
        F::store(v_ + i / kPanel * panel_elems + t * kPanel + i % kPanel,
                 whole ? F::load_f16(v + 2 * i) : F::load(last));
      }
    }
    add_values(TileValues{v_, panel_elems});
  }

  // Dims outside, blocks inside: one panel of the page's V stays in L1 for all states.
  template <class Values>
  void add_values(const Values& values) {
    constexpr u32 kWide = kPanel / F::kLanes;
    for (u32 i = 0; i < dims_;) {
      const bool whole = i + kPanel <= dims_;
      for (u32 b = 0; b < n_blocks_; ++b) {
        const Block& block = blocks_[b];
        // If rows see unequal parts, a slot that a row does not see may be NaN, so each row stops
        // at its own end.
        const u32 n_together = block.even ? block.n : 1;
        for (u32 r = 0; r < block.n; r += n_together) {
          with_constant(n_together, [&](auto n) {
            whole ? add_value<n.value, kWide>(block, r, values, i)
                  : add_value<n.value, 1>(block, r, values, i);
          });
        }
      }
      i += whole ? kPanel : F::kLanes;
    }
  }

  // Not inlined, as dot(): among the caller's variables GCC keeps the loop's pointers in memory.
  template <u32 kStates, u32 kRegisters, class Values>
  [[gnu::noinline]] void add_value(const Block& block, u32 first, const Values& values, u32 i) {
    const u32* states = block.states + first;
    V sums[kStates][kRegisters];
    clear(sums);
    const f32* p[kStates];
    for (u32 r = 0; r < kStates; ++r) {
      p[r] = p_ + u64{states[r]} * args_.page_tokens;
    }
    const u8* ahead = ahead_;
    Values at = values.at(i);
    const u64 n_slots = block.n_slots[first];
    for (u64 t = 0; t < n_slots; ++t, at.next()) {
      if (Values::kAsk) F::prefetch(ahead);
      ahead += ask_value_bytes_;
      V dims[kRegisters];
      for (u32 j = 0; j < kRegisters; ++j) dims[j] = at.load(j);
      for (u32 r = 0; r < kStates; ++r) {
        const V weight = F::set(p[r][t]);
        for (u32 j = 0; j < kRegisters; ++j) {
          sums[r][j] = F::fma(weight, dims[j], sums[r][j]);
        }
      }
    }
    if (Values::kAsk) ahead_ = ahead;
#pragma GCC unroll 4
    for (u32 r = 0; r < kStates; ++r) {
      f32* o = o_ + u64{states[r]} * dims_ + i;
      const V c = F::set(c_[states[r]]);
#pragma GCC unroll 4
      for (u32 j = 0; j < kRegisters; ++j) {
        const V before = F::load(o + j * F::kLanes);
        F::store(o + j * F::kLanes, F::fma(before, c, sums[r][j]));
      }
    }
  }

  void write_out(u32 n, u32 h) {
    const u64 state = u64{n} * args_.n_group_heads + h;
    f32* out = args_.out + n * args_.out_stride + u64{h} * args_.head_dim;
    V lanes[kParts];
    for (u32 j = 0; j < kParts; ++j) lanes[j] = F::load(l_ + state * 16 + j * F::kLanes);
    const V l = F::set(F::sum16(lanes));
    for (u32 i = 0; i < args_.head_dim; i += F::kLanes) {
      const u32 left = args_.head_dim - i;
      const V o = F::load(o_ + state * dims_ + i);
      const V value = args_.visible[n] == 0 ? F::zero() : F::div(o, l);
      left < F::kLanes ? F::store_some(out + i, value, left) : F::store(out + i, value);
    }
  }

  const AttnArgs& args_;
  const u32 n_states_;
  const bool decode_;
  const u64 slot_bytes_;
  const u32 dims_;             // head_dim, padded to 16
  const u64 ask_load_bytes_;   // next page's bytes, for each transposition of K of f16
  const u64 ask_score_bytes_;  // for each element of a tile of K
  const u64 ask_value_bytes_;  // for each slot of a panel of V
  const u8* ahead_ = nullptr;  // the next line to prefetch
  // A tile of K in f16, [head_dim, kTileSlots], or [head_dim, kLanes] for half a tile; in q8_0 and
  // q4_0 a ByteTile, and then what byte_values() makes of V.
  f32* k_;
  f32* v_;         // [dims_ / kPanel, page_tokens, kPanel]
  f32* o_;         // [n_states, dims_]
  f32* p_;         // [n_states, page_tokens], scores, then weights
  f32* l_;         // [n_states, 16]
  f32* m_;         // [n_states]
  f32* c_;         // [n_states]
  Block* blocks_;  // [n_states / kStatesMax, rounded up]
  // The queries over q8_0 and q4_0, quantised: words [n_states, head_dim / 32, F::kQueryWords];
  // scales, one for 32 elements; sums, one for 16.
  i32* query_;
  f32* query_scales_;
  i32* query_sums_;
  u32 n_blocks_ = 0;
};

}  // namespace
}  // namespace tarn::kernels
