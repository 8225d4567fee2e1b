// kernels/quant/activations_cuda.cu: a warp for each 32 elements.
#include "kernels/quant/activations_gpu.h"
#include "kernels/quant/quantize_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct Quantize {
  static constexpr u32 kThreads = 256;
  using Args = GpuQuantizeArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 row = cta.block_y();
    const u32 i = cta.block() * kThreads + cta.thread();
    if (row >= load<u32>(args.n_rows) || i >= args.k) return;  // a whole warp: 32 divides k
    quantize_element(cta, args.x[row * args.x_stride + i], args.out, row, args.k, i);
  }
};

}  // namespace

void quantize_gpu(const GpuQuantizeArgs& args, GpuStream* stream) {
  const u32 n_ctas = (args.k + Quantize::kThreads - 1) / Quantize::kThreads;
  launch<Quantize>({.n_ctas = n_ctas, .n_ctas_y = args.rows_max}, stream, args);
}

void activations_kernels(const KernelSink& sink) { tell<Quantize>(sink); }

}  // namespace tarn::kernels::TARN_GPU
