// Device code: the k largest of many numbers, found by all threads of a CTA. A larger number has a
// larger key.
//
//   kth    the k-th largest key, two bits at a time: a pass counts the numbers that reach each of
//          three bounds. Then it counts how many equal ones belong to the k largest. keys.each(fn)
//          calls fn(key, how many numbers have it) for this thread's share of the keys
//   take   places of the larger numbers and of the first n_equal equal ones, ascending.
//          ranks.two(place, ranks) says of numbers `place` and `place` + 32 how they compare with
//          the bound; a lane asks for its own place in a block of 64
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

enum class Rank : u32 { below, above, equal };

struct RankBound {
  u32 key;
  u32 n_equal;  // numbers to take with that key

  TARN_DEVICE Rank of(u32 other) const {
    return other > key ? Rank::above : other == key ? Rank::equal : Rank::below;
  }
};

template <u32 kThreads>
struct RankCta {
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kBounds = 3;
  static constexpr u32 kRoom = kWarps * kBounds;
  static constexpr u32 kBlock = 2 * kWarpLanes;  // numbers that a warp takes at once
  static constexpr u32 kBlocks = 4;              // of a warp between two barriers
  static_assert(kWarps <= kWarpLanes);

  // n, k > 0, and more than k numbers exist.
  template <class Keys>
  TARN_DEVICE static RankBound kth(Cta& cta, const Keys& keys, u32 k, const Shared<u32>& room) {
    u32 key = 0;  // the largest key that k numbers reach
    u32 counts[kBounds];
    for (u32 shift = 32; shift > 0;) {
      shift -= 2;
      const u32 bounds[kBounds] = {key | 1u << shift, key | 2u << shift, key | 3u << shift};
      count(cta, keys, bounds, counts, room);
      u32 bits = 0;
      TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) bits += counts[j] >= k ? 1u : 0u;
      key |= bits << shift;
    }
    // Only a NaN of all ones has the largest key, and no key lies above it.
    const u32 above = key + 1 != 0 ? key + 1 : key;
    const u32 bounds[kBounds] = {above, above, above};
    count(cta, keys, bounds, counts, room);
    return {key, k - (above != key ? counts[0] : 0)};
  }

  template <class Ranks>
  TARN_DEVICE static void take(Cta& cta, const Ranks& ranks, u32 n, u32 n_equal, u32* out,
                               const Shared<u32>& room) {
    constexpr u32 kOfWarp = kBlocks * kBlock, kOfCta = kWarps * kOfWarp;
    static_assert(kOfWarp < 1u << 16);  // a word holds both counts, that of larger ones below
    const u32 lanes_before = (1u << cta.lane()) - 1, last_block = (n - 1) / kBlock * kBlock;
    u32 above_before = 0, equal_before = 0;
    for (u32 begin = 0; begin < n; begin += kOfCta) {
      const u32 first = begin + cta.warp() * kOfWarp;
      Rank of_places[kBlocks][2];  // all asked for before a lane waits for others
      TARN_UNROLL(kBlocks) for (u32 b = 0; b < kBlocks; ++b) {
        const u32 block = first + b * kBlock;
        ranks.two((block < n ? block : last_block) + cta.lane(), of_places[b]);
      }
      u32 above[2 * kBlocks], equal[2 * kBlocks], mine = 0;
      TARN_UNROLL(2 * kBlocks) for (u32 i = 0; i < 2 * kBlocks; ++i) {
        const Rank rank = of_places[i / 2][i % 2];
        const bool is_there = first + i * kWarpLanes + cta.lane() < n;
        above[i] = cta.ballot(is_there && rank == Rank::above);
        equal[i] = cta.ballot(is_there && rank == Rank::equal);
        mine += bits_set(above[i]) + (bits_set(equal[i]) << 16);
      }
      if (cta.lane() == 0) room[cta.warp()] = mine;
      cta.barrier();  // every warp has written its counts
      u32 all_above = 0, all_equal = 0, my_above = above_before, my_equal = equal_before;
      TARN_UNROLL(kWarps) for (u32 w = 0; w < kWarps; ++w) {
        const u32 of_warp = room[w];
        all_above += of_warp & 0xffffu;
        all_equal += of_warp >> 16;
        my_above += w < cta.warp() ? of_warp & 0xffffu : 0;
        my_equal += w < cta.warp() ? of_warp >> 16 : 0;
      }
      TARN_UNROLL(2 * kBlocks) for (u32 i = 0; i < 2 * kBlocks; ++i) {
        const u32 number = my_equal + bits_set(equal[i] & lanes_before);
        const bool is_above = (above[i] >> cta.lane() & 1u) != 0;
        const bool is_taken = (equal[i] >> cta.lane() & 1u) != 0 && number < n_equal;
        const u32 place =
            my_above + bits_set(above[i] & lanes_before) + (number < n_equal ? number : n_equal);
        if (is_above || is_taken) store(out + place, first + i * kWarpLanes + cta.lane());
        my_above += bits_set(above[i]);
        my_equal += bits_set(equal[i]);
      }
      above_before += all_above;
      equal_before += all_equal;
      cta.barrier();  // all have read the counts, which the next turn overwrites
    }
  }

 private:
  // Counts the numbers that reach each of the bounds.
  template <class Keys>
  TARN_DEVICE static void count(Cta& cta, const Keys& keys, const u32 (&bounds)[kBounds],
                                u32 (&counts)[kBounds], const Shared<u32>& room) {
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) counts[j] = 0;
    keys.each([&](u32 key, u32 n_there) {
      TARN_UNROLL(3)
      for (u32 j = 0; j < kBounds; ++j) counts[j] += key >= bounds[j] ? n_there : 0u;
    });
    add_up(cta, counts, room);
  }

  // Adds up over the CTA; every thread gets the sums.
  TARN_DEVICE static void add_up(Cta& cta, u32 (&counts)[kBounds], const Shared<u32>& room) {
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) {
      const u32 of_warp = cta.sum(counts[j]);
      if (cta.lane() == 0) room[j * kWarps + cta.warp()] = of_warp;
    }
    cta.barrier();  // every warp has written its counts
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) {
      u32 of_warp = 0;
      if (cta.lane() < kWarps) of_warp = room[j * kWarps + cta.lane()];
      counts[j] = cta.sum(of_warp);
    }
    cta.barrier();  // all have read them
  }
};

}  // namespace tarn::kernels::TARN_GPU
