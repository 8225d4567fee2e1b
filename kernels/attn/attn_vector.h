// The body of attn.h for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
//
// A (row, head) pair is a "state". Per page: scores of all states, weights of all states, values of
// all states. A block has up to 4 states, so that a K or V register is used 4 times and their sums
// hide the latency of an addition. In the scores a lane is a slot: K is widened to f32 and
// transposed into a tile of 32 (16) slots that stays in L1, so a dot product needs no sum over
// lanes. V is widened into a tile of the page. If there is only one block (decode), V and K are
// widened in registers, each where it is used.
// Meanwhile the next page's lines are prefetched: pages are not contiguous, and the hardware's
// prefetcher reached a third of the speed.
#pragma once

#include <cstring>

#include "kernels/attn/attn.h"
#include "kernels/common/exp_vector.h"

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
        ask_load_bytes_(slot_bytes_ * F::kLanes * 8 / args.head_dim / 4),
        ask_score_bytes_(slot_bytes_ * kTileSlots / args.head_dim / 2),
        ask_value_bytes_(slot_bytes_ * kPanel / args.head_dim / 4) {
    const u64 page_tokens = args.page_tokens;
    const u64 n_states = n_states_;
    k_ = static_cast<f32*>(args.scratch);
    v_ = k_ + kTileSlots * dims_;
    p_ = v_ + page_tokens * ((dims_ + kPanel - 1) / kPanel * kPanel);
    o_ = args.state != nullptr ? args.state : p_ + n_states * page_tokens;
    l_ = o_ + n_states * dims_;
    m_ = l_ + n_states * kAttnLanes;
    c_ = p_ + n_states * (page_tokens + dims_ + kAttnTailFloats);
    // m_ and c_ have n_states floats each, and the arrays before them an even number: aligned for
    // pointers.
    blocks_ = reinterpret_cast<Block*>(c_ + n_states);
    static_assert(sizeof(Block) <= 14 * sizeof(f32) * kStatesMax);  // 18 of a state's 32 are taken
  }

  void run() {
    u32 visible_max = 0;
    for (u32 n = 0; n < args_.n_rows; ++n) {
      visible_max = args_.visible[n] > visible_max ? args_.visible[n] : visible_max;
    }
    if (args_.slot_begin == 0) start();
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
  static constexpr u32 kPairBytes = 4 * F::kLanes;          // of two dims of kLanes slots in f16
  static constexpr u32 kPanel = F::kLanes == 16 ? 64 : 16;  // dims of a tile of V that lie together
  static constexpr f32 kNone = -__builtin_inff();
  static constexpr u32 kChunkBytes = 16;  // bytes of a slot that load_columns reads
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

  static u32 round_up(u32 n) { return (n + 15) / 16 * 16; }

  void attend_page(const u8* page, u32 begin, u32 n_slots) {
    make_blocks(begin);
    // A tile may carry slots that no row sees: lanes stay apart, and compute_weights drops them.
    for (u32 t = 0; t < n_slots;) {
      const u32 n_tile = args_.page_tokens - t < kTileSlots ? F::kLanes : kTileSlots;
      score_tile(page + t * slot_bytes_, t, n_tile);
      t += n_tile;
    }
    for (u32 b = 0; b < n_blocks_; ++b) compute_weights(blocks_[b]);
    const u8* v = page + slot_bytes_ / 2;
    if (!decode_) {
      load_v(v, n_slots);
      add_values(TileValues{v_, u64{args_.page_tokens} * kPanel});
    } else if (args_.type == KvType::f16) {
      add_values(F16Values{v, slot_bytes_});
    } else if (args_.type == KvType::q8_0) {
      add_values(Q8Values{v, slot_bytes_});
    } else {
      add_values(Q4Values{v, slot_bytes_});
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

  // Slots [t, t + n_tile) of the page, which begin at `slots`; n_tile is F::kLanes or kTileSlots.
  void score_tile(const u8* slots, u32 t, u32 n_tile) {
    if (decode_ && args_.type == KvType::f16) return score_halves(slots, t, n_tile / F::kLanes);
    if (decode_) return score_bytes(slots, t, n_tile / F::kLanes);
    for (u32 part = 0; part < n_tile; part += F::kLanes) {
      load_k(slots + part * slot_bytes_, n_tile, k_ + part);
    }
    for (u32 b = 0; b < n_blocks_; ++b) {
      const Block& block = blocks_[b];
      ask_ahead(n_tile * slot_bytes_ / n_blocks_);
      score_block(block, t, n_tile / F::kLanes, Tile{});
    }
  }

  template <class Layout>
  void score_block(const Block& block, u32 t, u32 n_parts, const Layout& layout) {
    with_constant(block.n, [&](auto n) {
      n_parts < kTile ? score<n.value, 1>(block, t, layout)
                      : score<n.value, kTile>(block, t, layout);
    });
  }

  // Where one block reads a tile, its K stay f16: one store for two dims of kLanes slots.
  void score_halves(const u8* slots, u32 t, u32 n_parts) {
    constexpr u32 kElems = kChunkBytes / 2;
    u8* const tile = reinterpret_cast<u8*>(k_);
    for (u32 part = 0; part < n_parts; ++part, slots += F::kLanes * slot_bytes_) {
      u8* k = tile + part * kPairBytes;
      for (u32 i = 0; i < args_.head_dim; i += kElems) {
        ask_ahead(ask_load_bytes_);
        Words words[4];
        F::load_columns(slots + 2 * i, slot_bytes_, words);
        for (const Words pair : words) {
          F::store_halves(k, pair);
          k += n_parts * kPairBytes;
        }
      }
    }
    score_block(blocks_[0], t, n_parts, HalfTile{});
  }

  // Likewise the integers of q8_0 and q4_0 as bytes, four dims of kLanes slots together; behind
  // them the scales of each block of 32 dims, f32.
  void score_bytes(const u8* slots, u32 t, u32 n_parts) {
    const u32 half_bytes = args_.type == KvType::q8_0 ? kChunkBytes : 0;
    const u32 block_bytes = args_.type == KvType::q8_0 ? kQ8Bytes : kQ4Bytes;
    u8* const tile = reinterpret_cast<u8*>(k_);
    f32* const scales = k_ + u64{args_.head_dim} * n_parts * F::kLanes / sizeof(f32);
    for (u32 part = 0; part < n_parts; ++part, slots += F::kLanes * slot_bytes_) {
      const u8* column = slots;
      u8* k = tile + part * 4 * F::kLanes;
      for (u32 i = 0; i < args_.head_dim; i += kBlockElems, column += block_bytes) {
        ask_ahead(ask_load_bytes_ * kBlockElems / 8);
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
            k += n_parts * 4 * F::kLanes;
          }
        }
      }
    }
    score_block(blocks_[0], t, n_parts, ByteTile{scales});
  }

  // Prefetches lines of the next page. All loops over the page call it, spread over their time,
  // because a burst would fill the queue of misses and stall.
  void ask_ahead(u64 n_bytes) {
    for (u64 i = 0; i < n_bytes; i += 64) F::prefetch(ahead_ + i);
    ahead_ += n_bytes;
  }

  // Writes kLanes slots into columns of the tile [head_dim, n_tile].
  void load_k(const u8* slots, u64 n_tile, f32* k) {
    if (args_.type == KvType::f16) {
      load_k_f16(slots, n_tile, k);
    } else if (args_.type == KvType::q8_0) {
      load_k_q8_0(slots, n_tile, k);
    } else {
      load_k_q4_0(slots, n_tile, k);
    }
  }

  void load_k_f16(const u8* slots, u64 n_tile, f32* k) {
    constexpr u32 kElems = kChunkBytes / 2;
    u32 i = 0;
    for (; i + kElems <= args_.head_dim; i += kElems) {
      load_chunk_f16(slots + 2 * i, slot_bytes_, kElems / 2, n_tile, k + i * n_tile);
    }
    if (i == args_.head_dim) return;
    // The last 2, 4 or 6: a whole chunk would run past the last slot of the page.
    u8 rest[F::kLanes * kChunkBytes] = {};
    const u32 n = args_.head_dim - i;
    for (u32 t = 0; t < F::kLanes; ++t) {
      std::memcpy(rest + t * kChunkBytes, slots + t * slot_bytes_ + 2 * i, 2 * n);
    }
    load_chunk_f16(rest, kChunkBytes, n / 2, n_tile, k + i * n_tile);
  }

  static void load_chunk_f16(const u8* chunk, u64 stride, u32 n_words, u64 n_tile, f32* k) {
    Words words[4];
    F::load_columns(chunk, stride, words);
    for (u32 j = 0; j < n_words; ++j) {
      V pair[2];
      F::widen_f16(words[j], pair);
      F::store(k + (2 * j) * n_tile, pair[0]);
      F::store(k + (2 * j + 1) * n_tile, pair[1]);
    }
  }

  void load_k_q8_0(const u8* slots, u64 n_tile, f32* k) {
    for (u32 i = 0; i < args_.head_dim; i += kBlockElems, slots += kQ8Bytes) {
      Words words[4];
      F::load_columns(slots, slot_bytes_, words);
      V scales[2];  // the first two bytes of a block are its scale
      F::widen_f16(words[0], scales);
      for (u32 half = 0; half < 2; ++half) {
        F::load_columns(slots + 2 + half * kChunkBytes, slot_bytes_, words);
        for (u32 j = 0; j < 4; ++j) {
          V four[4];
          F::widen_i8(words[j], four);
          for (u32 b = 0; b < 4; ++b) {
            F::store(k + (i + half * kChunkBytes + 4 * j + b) * n_tile, F::mul(scales[0], four[b]));
          }
        }
      }
    }
  }

  void load_k_q4_0(const u8* slots, u64 n_tile, f32* k) {
    for (u32 i = 0; i < args_.head_dim; i += kBlockElems, slots += kQ4Bytes) {
      Words words[4];
      F::load_columns(slots, slot_bytes_, words);
      V scales[2];
      F::widen_f16(words[0], scales);
      F::load_columns(slots + 2, slot_bytes_, words);
      for (u32 half = 0; half < 2; ++half) {
        for (u32 j = 0; j < 4; ++j) {
          V four[4];
          F::widen_i4(words[j], half, four);
          for (u32 b = 0; b < 4; ++b) {
            F::store(k + (i + half * kChunkBytes + 4 * j + b) * n_tile, F::mul(scales[0], four[b]));
          }
        }
      }
    }
  }

  // How kDims dims of a tile lie, from dim i on: register j of n of dim i + e.
  struct Tile {
    static constexpr bool kAsk = false;
    static constexpr u32 kDims = 2;
    static constexpr u32 kBytes = kDims * F::kLanes * sizeof(f32);  // of one register of each
    V load(const u8* k, u32 /*i*/, u32 e, u32 j, u32 n) const {
      return F::load(reinterpret_cast<const f32*>(k) + (e * n + j) * F::kLanes);
    }
  };
  struct HalfTile {
    static constexpr bool kAsk = true;
    static constexpr u32 kDims = 2;
    static constexpr u32 kBytes = kPairBytes;
    V load(const u8* k, u32 /*i*/, u32 e, u32 j, u32 /*n*/) const {
      return F::load_f16(k + j * kBytes + e * (kBytes / kDims));
    }
  };
  struct ByteTile {
    static constexpr bool kAsk = true;
    static constexpr u32 kDims = 4;
    static constexpr u32 kBytes = kDims * F::kLanes;
    const f32* scales;
    V load(const u8* k, u32 i, u32 e, u32 j, u32 n) const {
      const V d = F::load(scales + (i / kBlockElems * n + j) * F::kLanes);
      return F::mul(d, F::load_i8(k + j * kBytes + e * F::kLanes));
    }
  };

  template <u32 kStates, u32 kRegisters, class Layout>
  void score(const Block& block, u32 t, const Layout& layout) {
    V sums[kStates][kRegisters];
    for (auto& state : sums) {
      for (V& sum : state) sum = F::zero();
    }
    const f32* q[kStates];
    for (u32 r = 0; r < kStates; ++r) q[r] = block.q[r];
    const u8* k = reinterpret_cast<const u8*>(k_);
    const u8* ahead = ahead_;
    for (u32 i = 0; i < args_.head_dim; i += Layout::kDims, k += kRegisters * Layout::kBytes) {
#pragma GCC unroll 4
      for (u32 e = 0; e < Layout::kDims; ++e) {
        if (Layout::kAsk) F::prefetch(ahead);
        ahead += ask_score_bytes_;
        V slots[kRegisters];
        for (u32 j = 0; j < kRegisters; ++j) slots[j] = layout.load(k, i, e, j, kRegisters);
        for (u32 r = 0; r < kStates; ++r) {
          const V element = F::set(q[r][i + e]);
          for (u32 j = 0; j < kRegisters; ++j) {
            sums[r][j] = F::fma(element, slots[j], sums[r][j]);
          }
        }
      }
    }
    if (Layout::kAsk) ahead_ = ahead;
    store_scores<kStates, kRegisters>(block, t, sums);
  }

  template <u32 kStates, u32 kRegisters>
  void store_scores(const Block& block, u32 t, const V (&sums)[kStates][kRegisters]) {
    const V scale = F::set(args_.scale);
    for (u32 r = 0; r < kStates; ++r) {
      f32* p = p_ + u64{block.states[r]} * args_.page_tokens + t;
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
    for (u32 t = 0; t < n_slots; t += F::kLanes) {
      maxima = F::max(F::keep_first(F::load(scores + t), n_slots - t, kNone), maxima);
    }
    return F::max_lane(maxima);
  }

  static void weigh(f32* p, u32 n_slots, f32 m, f32 c, f32* l) {
    V lanes[kParts];
    for (V& part : lanes) part = F::zero();
    for (u32 t = 0; t < n_slots; t += 16) {
      for (u32 j = 0; j < kParts; ++j) {
        const u32 at = t + j * F::kLanes;
        const V weights = exp_vector<F>(F::sub(F::load(p + at), F::set(m)));
        const V kept = F::keep_first(weights, at < n_slots ? n_slots - at : 0, 0.0f);
        F::store(p + at, kept);
        lanes[j] = F::add(lanes[j], kept);
      }
    }
    for (u32 j = 0; j < kParts; ++j) {
      const V before = F::load(l + j * F::kLanes);
      F::store(l + j * F::kLanes, F::fma(before, F::set(c), lanes[j]));
    }
  }

  // --- values: o = o * c + sum of p * v ---

  struct TileValues {
    static constexpr bool kAsk = false;
    const f32* v;
    u64 panel_elems;
    V load(u32 t, u32 i) const {
      return F::load(v + i / kPanel * panel_elems + t * kPanel + i % kPanel);
    }
  };
  struct F16Values {
    static constexpr bool kAsk = true;
    const u8* v;
    u64 slot_bytes;
    V load(u32 t, u32 i) const { return F::load_f16(v + t * slot_bytes + 2 * i); }
  };
  struct Q8Values {
    static constexpr bool kAsk = true;
    const u8* v;
    u64 slot_bytes;
    V load(u32 t, u32 i) const {
      const u8* block = v + t * slot_bytes + i / kBlockElems * kQ8Bytes;
      return F::mul(F::set(F::f16_at(block)), F::load_i8(block + 2 + i % kBlockElems));
    }
  };
  struct Q4Values {
    static constexpr bool kAsk = true;
    const u8* v;
    u64 slot_bytes;
    V load(u32 t, u32 i) const {
      const u8* block = v + t * slot_bytes + i / kBlockElems * kQ4Bytes;
      return F::mul(F::set(F::f16_at(block)), F::load_i4(block + 2, i % kBlockElems));
    }
  };

  void load_v(const u8* v, u32 n_slots) {
    const u64 panel_elems = u64{args_.page_tokens} * kPanel;
    for (u32 t = 0; t < n_slots; ++t, v += slot_bytes_) {
      for (u32 i = 0; i < dims_; i += F::kLanes) {
        f32* out = v_ + i / kPanel * panel_elems + t * kPanel + i % kPanel;
        F::store(out, load_v_part(v, i));
      }
    }
  }

  // Elements [i, i + kLanes) of one V; zeros behind head_dim.
  V load_v_part(const u8* v, u32 i) const {
    if (args_.type == KvType::q8_0) return Q8Values{v, 0}.load(0, i);
    if (args_.type == KvType::q4_0) return Q4Values{v, 0}.load(0, i);
    if (i + F::kLanes <= args_.head_dim) return F::load_f16(v + 2 * i);
    f32 part[F::kLanes] = {};
    for (u32 x = 0; i + x < args_.head_dim; ++x) part[x] = F::f16_at(v + 2 * (i + x));
    return F::load(part);
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

  template <u32 kStates, u32 kRegisters, class Values>
  void add_value(const Block& block, u32 first, const Values& values, u32 i) {
    const u32* states = block.states + first;
    V sums[kStates][kRegisters];
    const f32* p[kStates];
    for (u32 r = 0; r < kStates; ++r) {
      p[r] = p_ + u64{states[r]} * args_.page_tokens;
      for (u32 j = 0; j < kRegisters; ++j) sums[r][j] = F::zero();
    }
    const u8* ahead = ahead_;
    for (u32 t = 0; t < block.n_slots[first]; ++t) {
      if (Values::kAsk) F::prefetch(ahead);
      ahead += ask_value_bytes_;
      V dims[kRegisters];
      for (u32 j = 0; j < kRegisters; ++j) dims[j] = values.load(t, i + j * F::kLanes);
      for (u32 r = 0; r < kStates; ++r) {
        const V weight = F::set(p[r][t]);
        for (u32 j = 0; j < kRegisters; ++j) {
          sums[r][j] = F::fma(weight, dims[j], sums[r][j]);
        }
      }
    }
    if (Values::kAsk) ahead_ = ahead;
    for (u32 r = 0; r < kStates; ++r) {
      f32* o = o_ + u64{states[r]} * dims_ + i;
      const V c = F::set(c_[states[r]]);
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
      F::store_some(out + i, value, left < F::kLanes ? left : F::kLanes);
    }
  }

  const AttnArgs& args_;
  const u32 n_states_;
  const bool decode_;
  const u64 slot_bytes_;
  const u32 dims_;             // head_dim, padded to 16
  const u64 ask_load_bytes_;   // next page's bytes, for each 8 elements of kLanes slots of K
  const u64 ask_score_bytes_;  // for each element of a tile of K
  const u64 ask_value_bytes_;  // for each slot of a panel of V
  const u8* ahead_ = nullptr;  // the next line to prefetch
  f32* k_;                     // [head_dim, kTileSlots], or [head_dim, kLanes] for half a tile
  f32* v_;                     // [dims_ / kPanel, page_tokens, kPanel]
  f32* o_;                     // [n_states, dims_]
  f32* p_;                     // [n_states, page_tokens], scores, then weights
  f32* l_;                     // [n_states, 16]
  f32* m_;                     // [n_states]
  f32* c_;                     // [n_states]
  Block* blocks_;              // [n_states / kStatesMax, rounded up]
  u32 n_blocks_ = 0;
};

}  // namespace
}  // namespace tarn::kernels
