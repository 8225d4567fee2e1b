// kernels/rope/rope_cuda.cu: a thread a pair.
#include "kernels/common/cta.h"
#include "kernels/rope/rope_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct Rope {
  static constexpr u32 kThreads = 128;
  using Args = GpuRopeArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 n_pairs = args.n_rot / 2;
    const u32 at = cta.block() * kThreads + cta.thread();
    const u32 head = at / n_pairs, i = at % n_pairs;
    if (n >= load<u32>(args.n_rows) || head >= args.q.n_heads + args.k.n_heads) return;
    const bool of_q = head < args.q.n_heads;
    const GpuHeads& heads = of_q ? args.q : args.k;
    const u32 its_head = of_q ? head : head - args.q.n_heads;
    const bool adjacent = args.pairs == RopePairs::adjacent;
    f32* a = heads.x + n * heads.stride + u64{its_head} * args.head_dim + (adjacent ? 2 * i : i);
    f32* b = a + (adjacent ? 1 : n_pairs);
    const f32 cos = args.cos[u64{n} * n_pairs + i], sin = args.sin[u64{n} * n_pairs + i];
    const f32 turned_a = *a * cos - *b * sin;
    const f32 turned_b = *a * sin + *b * cos;
    store(a, turned_a);
    store(b, turned_b);
  }
};

}  // namespace

void rope_gpu(const GpuRopeArgs& args, GpuStream* stream) {
  const u32 n_threads = (args.q.n_heads + args.k.n_heads) * (args.n_rot / 2);
  const u32 n_ctas = (n_threads + Rope::kThreads - 1) / Rope::kThreads;
  launch<Rope>({.n_ctas = n_ctas, .n_ctas_y = args.rows_max}, stream, args);
}

void rope_kernels(const KernelSink& sink) { tell<Rope>(sink); }

}  // namespace tarn::kernels::TARN_GPU
