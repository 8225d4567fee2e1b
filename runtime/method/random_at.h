// The i-th number of a seed (splitmix64 as a counter; Steele, Lea and Flood 2014): the same on
// every machine, in any order, from any thread.
#pragma once

#include "platform/base/types.h"

namespace tarn::method {

inline u64 random_at(u64 seed, u64 i) {
  u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace tarn::method
