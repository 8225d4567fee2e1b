// A CTA a chunk of a row. A logit and its id are one 64-bit key whose order is "better": each
// thread keeps the best of its share that is still below the last key taken, and only the thread
// that had the winner looks for its next one.
#include "kernels/common/cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/sample/sample_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kInfinity = 0x7f800000u;
constexpr u32 kNobody = 0xffffffffu;

struct Key {
  u32 high, low;  // ordered bits of the logit, then the id reversed; 0, 0 is below all
};

TARN_DEVICE bool above(const Key& a, const Key& b) {
  return a.high > b.high || (a.high == b.high && a.low > b.low);
}

// Floats in ascending order as integers in ascending order; -0 and 0 are one.
TARN_DEVICE u32 ordered_bits(f32 logit) {
  const u32 bits = bits_of(logit == 0.0f ? 0.0f : logit);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

TARN_DEVICE bool is_broken(f32 logit) {
  const u32 bits = bits_of(logit);
  return bits == kInfinity || (bits & 0x7fffffffu) > kInfinity;
}

TARN_DEVICE Key max_warp_key(Cta& cta, Key key) {
  for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
    const Key other{cta.shuffle_xor(key.high, mask), cta.shuffle_xor(key.low, mask)};
    if (above(other, key)) key = other;
  }
  return key;
}

struct Sample {
  static constexpr u32 kThreads = 256;
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kShare = kGpuSampleChunk / kThreads;  // logits of a thread
  static constexpr u64 kSharedBytes =
      shared_bytes_of(kWarps, sizeof(U32x2)) + shared_bytes_of(kWarps, sizeof(u32));
  using Args = GpuSampleArgs;

  // The best key of this thread's share that is below `limit`; `n` logits from its first one on
  // are the chunk's.
  TARN_DEVICE static Key best_below(const f32 (&share)[kShare], u32 n, u32 first_id,
                                    const Key& limit) {
    Key best{0, 0};
    TARN_UNROLL(8)
    for (u32 j = 0; j < kShare; ++j) {
      if (j * kThreads >= n || is_broken(share[j])) continue;
      const Key key{ordered_bits(share[j]), ~(first_id + j * kThreads)};
      if (above(limit, key) && above(key, best)) best = key;
    }
    return best;
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<U32x2> best_of_warp = cta.shared<U32x2>(kWarps);
    const Shared<u32> broken_of_warp = cta.shared<u32>(kWarps);
    const u32 row = cta.block_y();
    if (row >= load<u32>(args.n_rows)) return;
    const u32 first_id = cta.block() * kGpuSampleChunk + cta.thread();
    const u32 n = first_id < args.n ? args.n - first_id : 0;
    const f32* logits = args.logits + row * args.stride;
    f32 share[kShare];
    TARN_UNROLL(8)
    for (u32 j = 0; j < kShare; ++j) {
      share[j] = j * kThreads < n ? load<f32>(logits + first_id + j * kThreads) : 0.0f;
    }
    u32 n_broken = 0;
    TARN_UNROLL(8)
    for (u32 j = 0; j < kShare; ++j) n_broken += is_broken(share[j]) ? 1u : 0u;
    for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
      n_broken += cta.shuffle_xor(n_broken, mask);
    }
    if (cta.lane() == 0) broken_of_warp[cta.warp()] = n_broken;

    const u64 place = u64{row} * gpu_sample_chunks(args.n) + cta.block();
    Key mine = best_below(share, n, first_id, {kNobody, kNobody});
    const u32 n_turns = args.k == 0 ? 1 : args.k;
    for (u32 turn = 0; turn < n_turns; ++turn) {
      const Key of_warp = max_warp_key(cta, mine);
      if (cta.lane() == 0) best_of_warp[cta.warp()] = U32x2{{of_warp.high, of_warp.low}};
      cta.barrier();  // every warp's best is there
      Key best{0, 0};
      for (u32 w = 0; w < kWarps; ++w) {
        const U32x2 words = best_of_warp[w];
        const Key key{words.w[0], words.w[1]};
        if (above(key, best)) best = key;
      }
      const bool found = best.high != 0;
      if (cta.thread() == 0) {
        if (turn == 0) store(args.summary + place, summary_of(logits, best, broken_of_warp));
        if (args.k != 0) {
          store(args.top + place * args.k + turn,
                GpuCandidate{found ? logits[~best.low] : 0.0f, found ? ~best.low : kNobody});
        }
      }
      if (found && mine.high == best.high && mine.low == best.low) {
        mine = best_below(share, n, first_id, best);
      }
      cta.barrier();  // all have read the warps' bests, which the next turn overwrites
    }
  }

  TARN_DEVICE static GpuLogitsSummary summary_of(const f32* logits, const Key& best,
                                                 const Shared<u32>& broken_of_warp) {
    u32 n_broken = 0;
    for (u32 w = 0; w < kWarps; ++w) n_broken += broken_of_warp[w];
    // -inf is a legal logit, but not a maximum.
    const f32 max = best.high != 0 ? logits[~best.low] : float_of(kInfinity | 0x80000000u);
    const bool finite = bits_of(max) != (kInfinity | 0x80000000u);
    return {finite ? ~best.low : 0, max, n_broken};
  }
};

}  // namespace

void sample_gpu(const GpuSampleArgs& args, GpuStream* stream) {
  launch<Sample>({.n_ctas = gpu_sample_chunks(args.n),
                  .n_ctas_y = args.rows_max,
                  .shared_bytes = Sample::kSharedBytes},
                 stream, args);
}

void sample_kernels(const KernelSink& sink) { tell<Sample>(sink); }

}  // namespace tarn::kernels::TARN_GPU
