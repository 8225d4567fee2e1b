// kernels/act/act_cuda.cu: a thread an element; a CTA 256 of one row.
#include "kernels/act/act_gpu.h"
#include "kernels/common/exp_cta.h"
#include "kernels/quant/quantize_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kCtaThreads = 256;

struct Swiglu {
  static constexpr u32 kThreads = kCtaThreads;
  using Args = GpuSwigluArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 i = cta.block() * kThreads + cta.thread();
    if (n >= load<u32>(args.n_rows) || i >= args.d) return;  // whole warps, where 32 divides d
    const f32 gate = args.gate[n * args.in_stride + i];
    const f32 value = (gate / (1.0f + exp_f32(-gate))) * args.up[n * args.in_stride + i];
    if (args.out != nullptr) store(args.out + n * args.out_stride + i, value);
    if (args.quantized.q != nullptr) quantize_element(cta, value, args.quantized, n, args.d, i);
  }
};

struct Add {
  static constexpr u32 kThreads = kCtaThreads;
  using Args = GpuAddArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 i = cta.block() * kThreads + cta.thread();
    if (n >= load<u32>(args.n_rows) || i >= args.d) return;
    f32* x = args.x + n * args.x_stride + i;
    store(x, *x + args.y[n * args.y_stride + i]);
  }
};

struct Gather {
  static constexpr u32 kThreads = kCtaThreads;
  using Args = GpuGatherArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 i = cta.block() * kThreads + cta.thread();
    if (n >= load<u32>(args.n_rows) || i >= args.d) return;
    store(args.out + n * args.out_stride + i, args.x[args.rows[n] * args.x_stride + i]);
  }
};

template <class Kernel>
void launch_rows(const typename Kernel::Args& args, GpuStream* stream) {
  const u32 n_ctas = (args.d + kCtaThreads - 1) / kCtaThreads;
  launch<Kernel>({.n_ctas = n_ctas, .n_ctas_y = args.rows_max}, stream, args);
}

}  // namespace

void swiglu_gpu(const GpuSwigluArgs& args, GpuStream* stream) { launch_rows<Swiglu>(args, stream); }
void add_gpu(const GpuAddArgs& args, GpuStream* stream) { launch_rows<Add>(args, stream); }
void gather_gpu(const GpuGatherArgs& args, GpuStream* stream) { launch_rows<Gather>(args, stream); }

void act_kernels(const KernelSink& sink) { tell<Swiglu, Add, Gather>(sink); }

}  // namespace tarn::kernels::TARN_GPU
