// The body of topk.h for one ISA's S, which holds kLanes values as keys: signed integers in the
// order of the values. Only the bodies include it; everything is in an anonymous namespace
// (kernels/common/f32x_avx512.h).
//
//   S::load(values, n)     keys of the first n <= kLanes values
//   S::bins(keys, shift, out)    (key + 2^31) >> shift of each lane, u32 [kLanes]
//   S::above(keys, key)    a bit for each lane that is above
//   S::equal(keys, key, shift)   a bit for each lane that is equal down to bit `shift`
//   S::put(lanes, place, out)    place + lane of each set bit to out, ascending
#pragma once

#include "kernels/topk/topk.h"

namespace tarn::kernels {
namespace {

template <class S>
class TopKRadix {
 public:
  explicit TopKRadix(const TopKArgs& args)
      : args_(args), counts_(static_cast<u32*>(args.scratch)), n_left_(args.k) {}

  u32 run() {
    if (args_.n <= args_.k) {
      for (u32 i = 0; i < args_.n; ++i) args_.out[i] = i;
      return args_.n;
    }
    if (args_.k == 0) return 0;
    count_all();
    settle(kBits);
    count_some(21, 10);
    settle(kBits);
    count_some(10, 0);
    settle(10);
    return take();
  }

 private:
  static constexpr u32 kBits = 11;  // of a level; 11 + 11 + 10 = 32
  static constexpr u32 kBins = 1u << kBits;
  static constexpr u32 kCopies = 4;  // neighbours use separate copies: they often share a bin
  static_assert(kCopies * kBins * sizeof(u32) == kTopKScratchBytes);

  u32 n_at(u32 i) const { return args_.n - i < S::kLanes ? args_.n - i : S::kLanes; }

  void clear(u32 n) {
    for (u32 b = 0; b < n; ++b) counts_[b] = 0;
  }

  // Counts the values by their top 11 bits.
  void count_all() {
    clear(kCopies * kBins);
    for (u32 i = 0; i < args_.n; i += S::kLanes) {
      u32 bins[S::kLanes];
      const u32 n = n_at(i);
      S::bins(S::load(args_.values + i, n), 32 - kBits, bins);
      for (u32 lane = 0; lane < n; ++lane) {
        counts_[(S::kLanes == 1 ? i : lane) % kCopies * kBins + bins[lane]] += 1;
      }
    }
    for (u32 b = 0; b < kBins; ++b) {
      for (u32 copy = 1; copy < kCopies; ++copy) counts_[b] += counts_[copy * kBins + b];
    }
  }

  // Counts the values with the prefix (down to bit `prefix_shift`) by their next bits (down to bit
  // `shift`).
  void count_some(u32 prefix_shift, u32 shift) {
    clear(kBins);
    const i32 pivot = key_of_prefix(prefix_shift);
    const u32 mask = (1u << (prefix_shift - shift)) - 1u;
    for (u32 i = 0; i < args_.n; i += S::kLanes) {
      const u32 n = n_at(i);
      const auto keys = S::load(args_.values + i, n);
      u32 lanes = S::equal(keys, pivot, prefix_shift) & first(n);
      if (lanes == 0) continue;
      u32 bins[S::kLanes];
      S::bins(keys, shift, bins);
      for (; lanes != 0; lanes &= lanes - 1) {
        counts_[bins[static_cast<u32>(__builtin_ctz(lanes))] & mask] += 1;
      }
    }
  }

  // The bin of the n_left_-th largest value, counted from above, becomes the prefix's next bits.
  void settle(u32 n_bits) {
    u32 bin = (1u << n_bits) - 1u;
    while (counts_[bin] < n_left_) n_left_ -= counts_[bin--];
    prefix_ = prefix_ << n_bits | bin;
  }

  i32 key_of_prefix(u32 shift) const { return static_cast<i32>((prefix_ << shift) ^ 0x80000000u); }
  static u32 first(u32 n) { return n == 32 ? ~0u : (1u << n) - 1u; }

  // Takes all values above the key in prefix_, and the first n_left_ of the equal ones.
  u32 take() {
    const i32 key = key_of_prefix(0);
    u32 n_out = 0;
    for (u32 i = 0; i < args_.n; i += S::kLanes) {
      const u32 n = n_at(i);
      const auto keys = S::load(args_.values + i, n);
      u32 lanes = S::above(keys, key) & first(n);
      for (u32 equal = n_left_ == 0 ? 0 : S::equal(keys, key, 0) & first(n);
           equal != 0 && n_left_ != 0; equal &= equal - 1) {
        lanes |= equal & -equal;
        n_left_ -= 1;
      }
      if (lanes == 0) continue;
      S::put(lanes, i, args_.out + n_out);
      n_out += static_cast<u32>(__builtin_popcount(lanes));
    }
    return n_out;
  }

  const TopKArgs& args_;
  u32* counts_;  // [kCopies, kBins]
  u32 n_left_;   // to be taken from the values with the prefix
  u32 prefix_ = 0;
};

}  // namespace
}  // namespace tarn::kernels
