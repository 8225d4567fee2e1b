// kernels/attn/attn_vector.h
//
// The body of attn.h for one ISA's F32x (kernels/common/f32x_<isa>.h). Included by the ISA files
// alone.
//
// Per page: K becomes f32 in scratch, transposed, so that a lane is a slot and a dot product needs
// no sum over lanes; V becomes f32 too, or is widened where it is used when one pass over it is
// enough (decode). Then three passes over the (row, head) pairs, "states": scores, weights, values.
// Scores and values are computed for up to 4 states by kWide registers at a time, so that each K or
// V register is used 4 times, and 16 sums hide the latency of an addition.
#pragma once

#include "kernels/attn/attn.h"
#include "kernels/common/exp_vector.h"

namespace tarn::kernels {
namespace {

template <class F>
class AttnVector {
 public:
  explicit AttnVector(const AttnArgs& args)
      : args_(args),
        slot_bytes_(2 * kv_vector_bytes(args.type, args.head_dim)),
        dims_(round_up(args.head_dim)) {
    const u64 n_states = u64{args.n_rows} * args.n_group_heads;
    const u64 page_tokens = args.page_tokens;
    k_ = static_cast<f32*>(args.scratch);
    v_ = k_ + page_tokens * args.head_dim;
    o_ = v_ + page_tokens * dims_;
    p_ = o_ + n_states * dims_;
    m_ = p_ + n_states * page_tokens;
    l_ = m_ + n_states;
    c_ = l_ + n_states;
  }

  void run() {
    u32 visible_max = 0;
    for (u32 n = 0; n < args_.n_rows; ++n) {
      visible_max = args_.visible[n] > visible_max ? args_.visible[n] : visible_max;
    }
    const u32 n_states = args_.n_rows * args_.n_group_heads;
    for (u64 i = 0; i < u64{n_states} * dims_; ++i) o_[i] = 0.0f;
    for (u32 s = 0; s < n_states; ++s) {
      m_[s] = -__builtin_inff();
      l_[s] = 0.0f;
    }
    for (u32 begin = 0; begin < visible_max; begin += args_.page_tokens) {
      const u32 left = visible_max - begin;
      const u8* const* page = args_.pages + begin / args_.page_tokens;
      const bool last = left <= args_.page_tokens;
      attend_page(page[0], last ? nullptr : page[1], begin, last ? left : args_.page_tokens);
    }
    for (u32 n = 0; n < args_.n_rows; ++n) {
      for (u32 h = 0; h < args_.n_group_heads; ++h) write_out(n, h);
    }
  }

 private:
  using V = typename F::V;
  using Words = typename F::Words;
  static constexpr u32 kParts = 16 / F::kLanes;          // registers that make 16 lanes
  static constexpr u32 kWide = F::kLanes == 16 ? 4 : 2;  // registers a state has at a time
  static constexpr u32 kStatesMax = 4;                   // states at a time

  // States whose rows see something of the page, with how much.
  struct Block {
    u32 n = 0;
    u32 states[kStatesMax];
    u32 n_slots[kStatesMax];
    const f32* q[kStatesMax];
  };

  static u32 round_up(u32 n) { return (n + 15) / 16 * 16; }

  void attend_page(const u8* page, const u8* next, u32 begin, u32 n_slots) {
    load_k(page, next, n_slots);
    const u8* v = page + slot_bytes_ / 2;
    const bool once = args_.n_rows * args_.n_group_heads <= kStatesMax && args_.head_dim % 16 == 0;
    if (!once) load_v(v, n_slots);
    for_each_block(begin, [&](const Block& block) { compute_scores(block); });
    for_each_block(begin, [&](const Block& block) {
      for (u32 j = 0; j < block.n; ++j) compute_weights(block.states[j], block.n_slots[j]);
    });
    for_each_block(begin, [&](const Block& block) {
      if (!once) {
        add_values(block, TileValues{v_, dims_});
      } else if (args_.type == KvType::f16) {
        add_values(block, F16Values{v, slot_bytes_});
      } else {
        add_values(block, Q8Values{v, slot_bytes_});
      }
    });
  }

  template <class Body>
  void for_each_block(u32 begin, Body body) const {
    Block block;
    for (u32 n = 0; n < args_.n_rows; ++n) {
      if (args_.visible[n] <= begin) continue;
      const u32 left = args_.visible[n] - begin;
      for (u32 h = 0; h < args_.n_group_heads; ++h) {
        block.states[block.n] = n * args_.n_group_heads + h;
        block.n_slots[block.n] = left < args_.page_tokens ? left : args_.page_tokens;
        block.q[block.n] = args_.q + n * args_.q_stride + u64{h} * args_.head_dim;
        block.n += 1;
        if (block.n == kStatesMax) {
          body(block);
          block.n = 0;
        }
      }
    }
    if (block.n > 0) body(block);
  }

  // Whole registers of slots, so the last one may carry slots that no row sees: lanes stay apart,
  // and compute_weights drops them.
  void load_k(const u8* page, const u8* next, u32 n_slots) {
    for (u32 t = 0; t < n_slots; t += F::kLanes) {
      const u8* slots = page + t * slot_bytes_;
      const u8* ahead = next == nullptr ? nullptr : next + t * slot_bytes_;
      if (args_.type == KvType::f16) {
        load_k_f16(slots, ahead, k_ + t);
      } else {
        load_k_q8_0(slots, ahead, k_ + t);
      }
    }
  }

  // A page is read in order but the next one lies anywhere, so its lines are asked for one page
  // ahead, a few at a time.
  void prefetch(const u8* ahead, u64 n_bytes) const {
    if (ahead == nullptr) return;
    for (u64 i = 0; i < n_bytes; i += 64) __builtin_prefetch(ahead + i);
  }

  void load_k_f16(const u8* slots, const u8* ahead, f32* k) {
    const u32 n_words = args_.head_dim / 2;
    const u64 row = args_.page_tokens;
    for (u32 w = 0; w < n_words; w += F::kLanes) {
      const u32 n = n_words - w < F::kLanes ? n_words - w : F::kLanes;
      prefetch(ahead == nullptr ? ahead : ahead + w * (4 * 2) * F::kLanes, u64{n} * 8 * F::kLanes);
      Words words[F::kLanes];
      F::load_transposed(slots + 4 * w, slot_bytes_, n, words);
      for (u32 j = 0; j < n; ++j) {
        V pair[2];
        F::widen_f16(words[j], pair);
        F::store(k + (2 * (w + j)) * row, pair[0]);
        F::store(k + (2 * (w + j) + 1) * row, pair[1]);
      }
    }
  }

  void load_k_q8_0(const u8* slots, const u8* ahead, f32* k) {
    prefetch(ahead, slot_bytes_ * F::kLanes);
    const u64 row = args_.page_tokens;
    for (u32 i = 0; i < args_.head_dim; i += kQ8Elems, slots += kQ8Bytes) {
      f32 d[F::kLanes];
      for (u32 t = 0; t < F::kLanes; ++t) d[t] = F::f16_at(slots + t * slot_bytes_);
      const V scale = F::load(d);
      Words words[F::kLanes];
      F::load_transposed(slots + 2, slot_bytes_, kQ8Elems / 4, words);
      for (u32 j = 0; j < kQ8Elems / 4; ++j) {
        V four[4];
        F::widen_i8(words[j], four);
        for (u32 b = 0; b < 4; ++b) F::store(k + (i + 4 * j + b) * row, F::mul(scale, four[b]));
      }
    }
  }

  void load_v(const u8* v, u32 n_slots) {
    const u32 d = args_.head_dim;
    for (u32 t = 0; t < n_slots; ++t, v += slot_bytes_) {
      f32* out = v_ + u64{t} * dims_;
      u32 i = 0;
      if (args_.type == KvType::q8_0) {
        const Q8Values values{v, 0};
        for (; i < d; i += F::kLanes) F::store(out + i, values.load(0, i));
        continue;
      }
      for (; i + F::kLanes <= d; i += F::kLanes) F::store(out + i, F::load_f16(v + 2 * i));
      for (; i < d; ++i) out[i] = F::f16_at(v + 2 * i);
      for (; i < dims_; ++i) out[i] = 0.0f;
    }
  }

  // --- scores ---

  void compute_scores(const Block& block) {
    switch (block.n) {
      case 1:
        return compute_scores_of<1>(block);
      case 2:
        return compute_scores_of<2>(block);
      case 3:
        return compute_scores_of<3>(block);
      default:
        return compute_scores_of<4>(block);
    }
  }

  template <u32 kStates>
  void compute_scores_of(const Block& block) {
    u32 n_slots = 0;
    for (u32 r = 0; r < kStates; ++r) n_slots = max_of(n_slots, block.n_slots[r]);
    const u32 n = round_up(n_slots);
    u32 t = 0;
    for (; t + kWide * F::kLanes <= n; t += kWide * F::kLanes) score<kStates, kWide>(block, t);
    for (; t < n; t += 16) score<kStates, kParts>(block, t);
  }

  template <u32 kStates, u32 kRegisters>
  void score(const Block& block, u32 t) {
    V sums[kStates][kRegisters];
    const f32* q[kStates];
    for (u32 r = 0; r < kStates; ++r) {
      q[r] = block.q[r];
      for (u32 j = 0; j < kRegisters; ++j) sums[r][j] = F::zero();
    }
    const f32* k = k_ + t;
    for (u32 i = 0; i < args_.head_dim; ++i, k += args_.page_tokens) {
      V slots[kRegisters];
      for (u32 j = 0; j < kRegisters; ++j) slots[j] = F::load(k + j * F::kLanes);
      for (u32 r = 0; r < kStates; ++r) {
        const V element = F::set(q[r][i]);
        for (u32 j = 0; j < kRegisters; ++j) {
          sums[r][j] = F::add(sums[r][j], F::mul(element, slots[j]));
        }
      }
    }
    const V scale = F::set(args_.scale);
    for (u32 r = 0; r < kStates; ++r) {
      f32* p = p_ + u64{block.states[r]} * args_.page_tokens + t;
      for (u32 j = 0; j < kRegisters; ++j) {
        F::store(p + j * F::kLanes, F::mul(sums[r][j], scale));
      }
    }
  }

  // --- weights: scores to p in place, and m, l, c of the state ---

  void compute_weights(u32 state, u32 n_slots) {
    constexpr f32 kNone = -__builtin_inff();
    f32* p = p_ + u64{state} * args_.page_tokens;
    V maxima = F::set(kNone);
    for (u32 t = 0; t < n_slots; t += F::kLanes) {
      // A NaN score is passed over here, as in the generic body, and makes its weight NaN below.
      maxima = F::max(F::keep_first(F::load(p + t), n_slots - t, kNone), maxima);
    }
    const f32 tile_max = F::max_lane(maxima);
    const f32 m_before = m_[state];
    const f32 m = tile_max > m_before ? tile_max : m_before;
    V lanes[kParts];
    for (V& part : lanes) part = F::zero();
    for (u32 t = 0; t < n_slots; t += 16) {
      for (u32 j = 0; j < kParts; ++j) {
        const u32 at = t + j * F::kLanes;
        if (at >= n_slots) break;
        const V weights = exp_vector<F>(F::sub(F::load(p + at), F::set(m)));
        const V kept = F::keep_first(weights, n_slots - at, 0.0f);
        F::store(p + at, kept);
        lanes[j] = F::add(lanes[j], kept);
      }
    }
    f32 c = 1.0f;  // exp(0), exactly
    if (m_before == kNone) {
      c = 0.0f;
    } else if (m != m_before) {
      c = F::max_lane(exp_vector<F>(F::set(m_before - m)));
    }
    m_[state] = m;
    l_[state] = l_[state] * c + F::sum16(lanes);
    c_[state] = c;
  }

  // --- values: o = o * c + sum of p * v ---

  static constexpr u32 kQ8Elems = 32;
  static constexpr u32 kQ8Bytes = 34;

  struct TileValues {
    const f32* v;
    u64 stride;
    V load(u32 t, u32 i) const { return F::load(v + t * stride + i); }
  };
  struct F16Values {
    const u8* v;
    u64 slot_bytes;
    V load(u32 t, u32 i) const { return F::load_f16(v + t * slot_bytes + 2 * i); }
  };
  struct Q8Values {
    const u8* v;
    u64 slot_bytes;
    V load(u32 t, u32 i) const {
      const u8* block = v + t * slot_bytes + i / kQ8Elems * kQ8Bytes;
      return F::mul(F::set(F::f16_at(block)), F::load_i8(block + 2 + i % kQ8Elems));
    }
  };

  template <class Values>
  void add_values(const Block& block, const Values& values) {
    bool even = true;
    for (u32 r = 1; r < block.n; ++r) even = even && block.n_slots[r] == block.n_slots[0];
    if (!even) {  // at the end of a slice: what a state does not see may be NaN, so none goes
                  // further
      for (u32 r = 0; r < block.n; ++r)
        add_values_of<1>(block.states + r, block.n_slots[r], values);
      return;
    }
    switch (block.n) {
      case 1:
        return add_values_of<1>(block.states, block.n_slots[0], values);
      case 2:
        return add_values_of<2>(block.states, block.n_slots[0], values);
      case 3:
        return add_values_of<3>(block.states, block.n_slots[0], values);
      default:
        return add_values_of<4>(block.states, block.n_slots[0], values);
    }
  }

  template <u32 kStates, class Values>
  void add_values_of(const u32* states, u32 n_slots, const Values& values) {
    u32 i = 0;
    for (; i + kWide * F::kLanes <= dims_; i += kWide * F::kLanes) {
      add_value<kStates, kWide>(states, n_slots, values, i);
    }
    for (; i < dims_; i += 16) add_value<kStates, kParts>(states, n_slots, values, i);
  }

  template <u32 kStates, u32 kRegisters, class Values>
  void add_value(const u32* states, u32 n_slots, const Values& values, u32 i) {
    V sums[kStates][kRegisters];
    const f32* p[kStates];
    for (u32 r = 0; r < kStates; ++r) {
      p[r] = p_ + u64{states[r]} * args_.page_tokens;
      for (u32 j = 0; j < kRegisters; ++j) sums[r][j] = F::zero();
    }
    for (u32 t = 0; t < n_slots; ++t) {
      V dims[kRegisters];
      for (u32 j = 0; j < kRegisters; ++j) dims[j] = values.load(t, i + j * F::kLanes);
      for (u32 r = 0; r < kStates; ++r) {
        const V weight = F::set(p[r][t]);
        for (u32 j = 0; j < kRegisters; ++j) {
          sums[r][j] = F::add(sums[r][j], F::mul(weight, dims[j]));
        }
      }
    }
    for (u32 r = 0; r < kStates; ++r) {
      f32* o = o_ + u64{states[r]} * dims_ + i;
      const V c = F::set(c_[states[r]]);
      for (u32 j = 0; j < kRegisters; ++j) {
        const V before = F::load(o + j * F::kLanes);
        F::store(o + j * F::kLanes, F::add(F::mul(before, c), sums[r][j]));
      }
    }
  }

  void write_out(u32 n, u32 h) {
    const u64 state = u64{n} * args_.n_group_heads + h;
    f32* out = args_.out + n * args_.out_stride + u64{h} * args_.head_dim;
    const V l = F::set(l_[state]);
    for (u32 i = 0; i < args_.head_dim; i += F::kLanes) {
      const u32 left = args_.head_dim - i;
      const V o = F::load(o_ + state * dims_ + i);
      const V value = args_.visible[n] == 0 ? F::zero() : F::div(o, l);
      F::store_some(out + i, value, left < F::kLanes ? left : F::kLanes);
    }
  }

  static u32 max_of(u32 a, u32 b) { return a > b ? a : b; }

  const AttnArgs& args_;
  const u64 slot_bytes_;
  const u32 dims_;  // head_dim, padded to 16
  f32* k_;          // [head_dim, page_tokens]
  f32* v_;          // [page_tokens, dims_]
  f32* o_;          // [n_states, dims_]
  f32* p_;          // [n_states, page_tokens], scores, then weights
  f32* m_;          // [n_states] each
  f32* l_;
  f32* c_;
};

}  // namespace
}  // namespace tarn::kernels
