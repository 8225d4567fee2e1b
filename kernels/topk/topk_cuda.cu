// kernels/topk/topk_cuda.cu: a CTA a row.
#include "kernels/common/cta.h"
#include "kernels/common/rank_cta.h"
#include "kernels/topk/topk_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct TopK {
  static constexpr u32 kThreads = 512;
  static constexpr u32 kCtasASm = 2;
  using Args = GpuTopKArgs;
  using Best = RankCta<kThreads>;
  static constexpr u64 kSharedBytes = shared_bytes_of(Best::kRoom, sizeof(u32));

  struct Values {
    const f32* values;
    u32 n, thread;
    TARN_DEVICE u32 key(u32 i) const { return rank_key(load<f32>(values + i)); }
    template <class Fn>
    TARN_DEVICE void each(Fn&& fn) const {
      for (u32 i = thread; i < n; i += kThreads) fn(key(i), 1u);
    }
  };
  struct Ranks {
    const Values& values;
    RankBound bound;
    TARN_DEVICE void two(u32 place, Rank (&ranks)[2]) const {
      TARN_UNROLL(2) for (u32 i = 0; i < 2; ++i) {
        const u32 its = place + i * kWarpLanes;
        ranks[i] = bound.of(values.key(its < values.n ? its : 0));
      }
    }
  };

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<u32> room = cta.shared<u32>(Best::kRoom);
    u32* out = args.out + cta.block() * args.out_stride;
    const u32 n = load<u32>(args.n), k = load<u32>(args.k);
    if (k == 0) return;
    if (n <= k) {
      for (u32 i = cta.thread(); i < n; i += kThreads) store(out + i, i);
      return;
    }
    const Values values{args.values + cta.block() * args.values_stride, n, cta.thread()};
    const RankBound bound = Best::kth(cta, values, k, room);
    Best::take(cta, Ranks{values, bound}, n, bound.n_equal, out, room);
  }
};

}  // namespace

void top_k_gpu(const GpuTopKArgs& args, GpuStream* stream) {
  launch<TopK>({.n_ctas = args.n_rows, .shared_bytes = TopK::kSharedBytes}, stream, args);
}

void topk_kernels(const KernelSink& sink) { tell<TopK>(sink); }

}  // namespace tarn::kernels::TARN_GPU
