//   out = the places of the k largest of values[0..n), ascending; all n where n <= k
//
//   values   [n] f32; larger is better, equal values go to the lower place, -0 is equal to +0
//   out      [min(n, k)] u32
//   scratch  kTopKScratchBytes, 64-byte aligned
//
// Exact: the result is a function of the values alone, the same on every ISA. A NaN has a place in
// the order too (below all, or above all if its sign bit is clear). So the function stays defined,
// but the choice has no meaning then.
// How    finds the k-th value by radix. A histogram of the key's top 11 bits finds its bin, one of
//        the next 11 bits its place in the bin, one of the last 10 bits the value. Then one pass
//        takes all larger values and the first of the equal ones.
// Cost   reads the values four times (32K values are 128 KiB: L2) and writes 4*k bytes; about two
//        operations a value in the first pass, the others skip a register at a time.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

inline constexpr u64 kTopKScratchBytes = 32 * kKiB;

struct TopKArgs {
  const f32* values;
  u32* out;
  void* scratch;
  u32 n;
  u32 k;
};
// Returns min(n, k).
using TopKFn = u32 (*)(const TopKArgs& args);
u32 top_k_generic(const TopKArgs& args);
u32 top_k_avx2(const TopKArgs& args);
u32 top_k_avx512(const TopKArgs& args);

}  // namespace tarn::kernels
