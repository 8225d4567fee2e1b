// splitmix64 (Steele, Lea and Flood 2014): its finaliser, and its numbers by a counter. They are
// the same on every machine, in any order, from any thread.
#pragma once

#include "platform/base/types.h"

namespace tarn {

// Every input bit changes every output bit.
constexpr u64 mix64(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline constexpr u64 kGoldenGamma = 0x9e3779b97f4a7c15u;

// The i-th number of a seed.
constexpr u64 random_at(u64 seed, u64 i) { return mix64(seed + (i + 1) * kGoldenGamma); }

}  // namespace tarn
