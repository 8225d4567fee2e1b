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
  using Rank = RankCta<kThreads>;
  static constexpr u64 kSharedBytes = shared_bytes_of(Rank::kRoom, sizeof(u32));

  struct Values {
    const f32* values;
    TARN_DEVICE u32 key(u32 i) const { return rank_key(load<f32>(values + i)); }
    TARN_DEVICE static u32 count(u32) { return 1; }
  };

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<u32> room = cta.shared<u32>(Rank::kRoom);
    const Values values{args.values + cta.block() * args.values_stride};
    u32* out = args.out + cta.block() * args.out_stride;
    const u32 n = load<u32>(args.n), k = load<u32>(args.k);
    if (k == 0) return;
    if (n <= k) {
      for (u32 i = cta.thread(); i < n; i += kThreads) store(out + i, i);
      return;
    }
    const RankBound bound = Rank::kth(cta, values, n, k, room);
    Rank::take(cta, values, n, bound, out, room);
  }
};

}  // namespace

void top_k_gpu(const GpuTopKArgs& args, GpuStream* stream) {
  launch<TopK>({.n_ctas = args.n_rows, .shared_bytes = TopK::kSharedBytes}, stream, args);
}

void topk_kernels(const KernelSink& sink) { tell<TopK>(sink); }

}  // namespace tarn::kernels::TARN_GPU
