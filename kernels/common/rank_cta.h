// Device code: the k largest of many numbers, found by all threads of a CTA. A larger number has a
// larger key. `keys` has key(i), and count(i), the number of values with that key.
//
//   kth    the k-th largest key, two bits at a time: a pass counts the numbers that reach each of
//          three bounds. Then it counts how many equal ones belong to the k largest. Thread t reads
//          only the numbers t, t + kThreads, ...
//   take   places of the larger numbers and of the first n_equal equal ones, ascending
//
// `room` is shared, kRoom words; it is free again when a function returns.
#pragma once

#include "kernels/common/cta.h"

namespace tarn::kernels::TARN_GPU {

// -0 and 0 are one.
TARN_DEVICE u32 rank_key(f32 value) {
  const u32 bits = bits_of(value + 0.0f);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

struct RankBound {
  u32 key;
  u32 n_equal;  // numbers to take with that key
};

template <u32 kThreads>
struct RankCta {
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kBounds = 3;
  static constexpr u32 kRoom = kWarps * kBounds;

  // n, k > 0, and more than k numbers exist.
  template <class Keys>
  TARN_DEVICE static RankBound kth(Cta& cta, const Keys& keys, u32 n, u32 k,
                                   const Shared<u32>& room) {
    u32 key = 0;  // the largest key that k numbers reach
    u32 counts[kBounds];
    for (u32 shift = 32; shift > 0;) {
      shift -= 2;
      const u32 bounds[kBounds] = {key | 1u << shift, key | 2u << shift, key | 3u << shift};
      count(cta, keys, n, bounds, counts, room);
      u32 bits = 0;
      TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) bits += counts[j] >= k ? 1u : 0u;
      key |= bits << shift;
    }
    // Only a NaN of all ones has the largest key, and no key lies above it.
    const u32 above = key + 1 != 0 ? key + 1 : key;
    const u32 bounds[kBounds] = {above, above, above};
    count(cta, keys, n, bounds, counts, room);
    return {key, k - (above != key ? counts[0] : 0)};
  }

  // A word holds both counts, at most kThreads each; the larger numbers' is in its lower half.
  template <class Keys>
  TARN_DEVICE static void take(Cta& cta, const Keys& keys, u32 n, RankBound bound, u32* out,
                               const Shared<u32>& room) {
    u32 above_before = 0, equal_before = 0;
    for (u32 begin = 0; begin < n; begin += kThreads) {
      const u32 i = begin + cta.thread();
      const u32 its_key = i < n ? keys.key(i) : 0;
      const bool is_above = i < n && its_key > bound.key;
      const bool is_equal = i < n && its_key == bound.key;
      const u32 mine = (is_above ? 1u : 0u) + (is_equal ? 1u << 16 : 0u);
      u32 up_to = mine;  // of this lane and those before it
      for (u32 step = 1; step < kWarpLanes; step *= 2) {
        const u32 from = cta.lane() >= step ? cta.lane() - step : cta.lane();
        const u32 other = cta.shuffle(up_to, from);
        if (cta.lane() >= step) up_to += other;
      }
      if (cta.lane() == kWarpLanes - 1) room[cta.warp()] = up_to;
      cta.barrier();  // every warp has written its counts
      u32 before = up_to - mine, all = 0;
      for (u32 w = 0; w < kWarps; ++w) {
        const u32 n_warp = room[w];
        if (w < cta.warp()) before += n_warp;
        all += n_warp;
      }
      const u32 equal = equal_before + (before >> 16);
      const u32 n_before = equal < bound.n_equal ? equal : bound.n_equal;
      const u32 place = above_before + (before & 0xffffu) + n_before;
      if (is_above || (is_equal && equal < bound.n_equal)) store(out + place, i);
      above_before += all & 0xffffu;
      equal_before += all >> 16;
      cta.barrier();  // all have read the counts, which the next turn overwrites
    }
  }

 private:
  // Counts the numbers that reach each of the bounds.
  template <class Keys>
  TARN_DEVICE static void count(Cta& cta, const Keys& keys, u32 n, const u32 (&bounds)[kBounds],
                                u32 (&counts)[kBounds], const Shared<u32>& room) {
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) counts[j] = 0;
    for (u32 i = cta.thread(); i < n; i += kThreads) {
      const u32 key = keys.key(i), n_there = keys.count(i);
      TARN_UNROLL(3)
      for (u32 j = 0; j < kBounds; ++j) counts[j] += key >= bounds[j] ? n_there : 0u;
    }
    add_up(cta, counts, room);
  }

  // Adds up over the CTA; every thread gets the sums.
  TARN_DEVICE static void add_up(Cta& cta, u32 (&counts)[kBounds], const Shared<u32>& room) {
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) {
      for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
        counts[j] += cta.shuffle_xor(counts[j], mask);
      }
      if (cta.lane() == 0) room[cta.warp() * kBounds + j] = counts[j];
    }
    cta.barrier();  // every warp has written its counts
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) {
      counts[j] = 0;
      for (u32 w = 0; w < kWarps; ++w) {
        const u32 n_warp = room[w * kBounds + j];
        counts[j] += n_warp;
      }
    }
    cta.barrier();  // all have read them
  }
};

}  // namespace tarn::kernels::TARN_GPU
