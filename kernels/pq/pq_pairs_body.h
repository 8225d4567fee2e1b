// The body of pq_pairs.h for one ISA. Only the bodies include it; everything is in an anonymous
// namespace (f32x_avx512.h). The compiler turns plain loops over integers into whole registers of
// the including file's ISA; their sums are exact in any order.
//
//   W::weigh_pairs(args, scores, weights)   weights [side^2] of the pairs; scores is scratch
//   W::above(keys, key), W::equal(keys, key)   a bit for each of 16 keys
//   W::take(args, marks, n_equal)           writes places to args.out; returns their number
#pragma once

#include <bit>

#include "kernels/pq/pq_pairs.h"
#include "kernels/pq/pq_tiles.h"

namespace tarn::kernels {
namespace {

// The pairs whose tokens are taken: bit c1 of [c0].
struct PqMarks {
  u64 above[kPqPairSideMax];  // all of them
  u64 equal[kPqPairSideMax];  // the first n_equal of them
};

// The key of the k-th largest weight is the largest T that at least k tokens reach.
template <class W>
u32 choose_by_pairs(const PqPairsArgs& args) {
  if (args.n_tokens <= args.k) {
    for (u32 t = 0; t < args.n_tokens; ++t) args.out[t] = t;
    return args.n_tokens;
  }
  if (args.k == 0) return 0;
  const u32 n = args.side * args.side;
  f32* weights = static_cast<f32*>(args.scratch);
  u32* keys = reinterpret_cast<u32*>(weights + n);
  W::weigh_pairs(args, reinterpret_cast<f32*>(keys), weights);
  // Keys ascend with the values: a negative value has all bits inverted, others the sign bit.
  for (u32 i = 0; i < n; ++i) {
    const i32 bits = std::bit_cast<i32>(weights[i] + 0.0f);
    keys[i] = static_cast<u32>(bits ^ ((bits >> 31) & 0x7fffffff)) ^ 0x80000000u;
  }
  const u32* counts = args.counts;
  u32 key = 0;
  for (u32 bit = 0x80000000u; bit != 0; bit >>= 1) {
    const u32 tried = key | bit;
    u32 n_reach = 0;
    for (u32 i = 0; i < n; ++i) n_reach += counts[i] & (keys[i] >= tried ? ~0u : 0u);
    if (n_reach >= args.k) key = tried;
  }
  u32 n_above = 0;
  for (u32 i = 0; i < n; ++i) n_above += counts[i] & (keys[i] > key ? ~0u : 0u);
  PqMarks marks{};
  for (u32 i = 0; i < n; i += 16) {
    marks.above[i / args.side] |= u64{W::above(keys + i, key)} << i % args.side;
    marks.equal[i / args.side] |= u64{W::equal(keys + i, key)} << i % args.side;
  }
  return W::take(args, marks, args.k - n_above);
}

// Calls take(codes 0, codes 1, first place, n) for tiles of tokens, with codes as bytes.
template <class Take>
void pq_for_pair_tiles(const PqPairsArgs& args, Take take) {
  constexpr u32 kTileTokens = 1024;
  u8 buffers[2][kTileTokens];
  for (u32 begin = 0; begin < args.n_tokens; begin += kTileTokens) {
    const u32 left = args.n_tokens - begin;
    const u32 n = left < kTileTokens ? left : kTileTokens;
    const u64 offset = u64{begin / kPqBlockTokens} * pq_block_bytes(args.format);
    const u8* first = pq_bytes(args.format, args.codes + offset, n, buffers[0]);
    const u8* second =
        pq_bytes(args.format, args.codes + args.codes_stride + offset, n, buffers[1]);
    take(first, second, begin, n);
  }
}

// One key and one token at a time; for bodies without a vector form.
struct Singly {
  static u32 above(const u32* keys, u32 key) {
    u32 lanes = 0;
    for (u32 i = 0; i < 16; ++i) lanes |= (keys[i] > key ? 1u : 0u) << i;
    return lanes;
  }
  static u32 equal(const u32* keys, u32 key) {
    u32 lanes = 0;
    for (u32 i = 0; i < 16; ++i) lanes |= (keys[i] == key ? 1u : 0u) << i;
    return lanes;
  }
  static u32 take(const PqPairsArgs& args, const PqMarks& marks, u32 n_equal) {
    u32 n_out = 0;
    pq_for_pair_tiles(args, [&](const u8* c0, const u8* c1, u32 begin, u32 n) {
      for (u32 t = 0; t < n; ++t) {
        if ((marks.above[c0[t]] >> c1[t] & 1u) != 0) {
          args.out[n_out++] = begin + t;
        } else if (n_equal != 0 && (marks.equal[c0[t]] >> c1[t] & 1u) != 0) {
          args.out[n_out++] = begin + t;
          n_equal -= 1;
        }
      }
    });
    return n_out;
  }
};

}  // namespace
}  // namespace tarn::kernels
