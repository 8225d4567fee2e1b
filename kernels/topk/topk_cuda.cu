// kernels/topk/topk_cuda.cu: a CTA a row.
#include "kernels/common/cta.h"
#include "kernels/topk/topk_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct TopK {
  static constexpr u32 kThreads = 512;
  static constexpr u32 kWarps = kThreads / kWarpLanes;
  static constexpr u32 kBounds = 3;
  using Args = GpuTopKArgs;

  // Keys ascend with the values; -0 and 0 are one.
  TARN_DEVICE static u32 key_of(f32 value) {
    const u32 bits = bits_of(value + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }

  // Sums over the CTA; every thread gets them. `room` has kBounds words for each warp.
  TARN_DEVICE static void add_up(Cta& cta, u32 (&counts)[kBounds], const Shared<u32>& room) {
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) {
      for (u32 mask = kWarpLanes / 2; mask > 0; mask /= 2) {
        counts[j] += cta.shuffle_xor(counts[j], mask);
      }
      if (cta.lane() == 0) room[cta.warp() * kBounds + j] = counts[j];
    }
    cta.barrier();  // every warp's counts are there
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) {
      counts[j] = 0;
      for (u32 w = 0; w < kWarps; ++w) {
        const u32 count = room[w * kBounds + j];
        counts[j] += count;
      }
    }
    cta.barrier();  // all have read them
  }

  // How many keys reach each of the bounds.
  TARN_DEVICE static void count(Cta& cta, const f32* values, u32 n, const u32 (&bounds)[kBounds],
                                u32 (&counts)[kBounds], const Shared<u32>& room) {
    TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) counts[j] = 0;
    for (u32 i = cta.thread(); i < n; i += kThreads) {
      const u32 key = key_of(load<f32>(values + i));
      TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) counts[j] += key >= bounds[j] ? 1u : 0u;
    }
    add_up(cta, counts, room);
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<u32> room = cta.shared<u32>(kWarps * kBounds);
    const f32* values = args.values + cta.block() * args.values_stride;
    u32* out = args.out + cta.block() * args.out_stride;
    const u32 n = load<u32>(args.n);
    if (args.k == 0) return;
    if (n <= args.k) {
      for (u32 i = cta.thread(); i < n; i += kThreads) out[i] = i;
      return;
    }
    u32 key = 0;  // the largest that k values reach: the k-th
    u32 counts[kBounds];
    for (u32 shift = 32; shift > 0;) {
      shift -= 2;
      const u32 bounds[kBounds] = {key | 1u << shift, key | 2u << shift, key | 3u << shift};
      count(cta, values, n, bounds, counts, room);
      u32 bits = 0;
      TARN_UNROLL(3) for (u32 j = 0; j < kBounds; ++j) bits += counts[j] >= args.k ? 1u : 0u;
      key |= bits << shift;
    }
    // No value's key is the largest number: that would be a NaN of all ones, which has none above.
    const u32 above = key + 1 != 0 ? key + 1 : key;
    const u32 bounds[kBounds] = {above, above, above};
    count(cta, values, n, bounds, counts, room);
    take(cta, values, n, key, args.k - (above != key ? counts[0] : 0), out, room);
  }

  // Places of the values above `key` and of the first n_equal equal ones. A word counts both: those
  // above in its lower half, of at most kThreads.
  TARN_DEVICE static void take(Cta& cta, const f32* values, u32 n, u32 key, u32 n_equal, u32* out,
                               const Shared<u32>& room) {
    u32 above_before = 0, equal_before = 0;
    for (u32 begin = 0; begin < n; begin += kThreads) {
      const u32 i = begin + cta.thread();
      const u32 its_key = i < n ? key_of(load<f32>(values + i)) : 0;
      const bool is_above = i < n && its_key > key, is_equal = i < n && its_key == key;
      const u32 mine = (is_above ? 1u : 0u) + (is_equal ? 1u << 16 : 0u);
      u32 up_to = mine;  // of this lane and those before it
      for (u32 step = 1; step < kWarpLanes; step *= 2) {
        const u32 from = cta.lane() >= step ? cta.lane() - step : cta.lane();
        const u32 other = cta.shuffle(up_to, from);
        if (cta.lane() >= step) up_to += other;
      }
      if (cta.lane() == kWarpLanes - 1) room[cta.warp()] = up_to;
      cta.barrier();  // every warp's counts are there
      u32 before = up_to - mine, all = 0;
      for (u32 w = 0; w < kWarps; ++w) {
        const u32 count = room[w];
        if (w < cta.warp()) before += count;
        all += count;
      }
      const u32 equal = equal_before + (before >> 16);
      const u32 place = above_before + (before & 0xffffu) + (equal < n_equal ? equal : n_equal);
      if (is_above || (is_equal && equal < n_equal)) out[place] = i;
      above_before += all & 0xffffu;
      equal_before += all >> 16;
      cta.barrier();  // all have read the counts, which the next turn overwrites
    }
  }
};

}  // namespace

void top_k_gpu(const GpuTopKArgs& args, GpuStream* stream) {
  constexpr u64 kSharedBytes = shared_bytes_of(u64{TopK::kWarps} * TopK::kBounds, sizeof(u32));
  launch<TopK>({.n_ctas = args.n_rows, .shared_bytes = kSharedBytes}, stream, args);
}

}  // namespace tarn::kernels::TARN_GPU
