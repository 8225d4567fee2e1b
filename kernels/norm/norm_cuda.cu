// kernels/norm/norm_cuda.cu: a CTA a row, or a warp a head.
#include "kernels/norm/norm_gpu.h"

#include "kernels/common/cta.h"
#include "kernels/common/reduce_cta.h"
#include "kernels/quant/quantize_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

// One CTA has the whole row, so what it costs is latency: a thread asks for all that it reads of up
// to 4,096 elements at once, the weights too, and keeps it.
struct RmsNormRows {
  static constexpr u32 kThreads = 1024;
  static constexpr u32 kTogether = 4;  // elements of a thread
  static constexpr u64 kSharedBytes = shared_bytes_of(kThreads / kWarpLanes, sizeof(f32));
  using Args = GpuRmsNormArgs;

  struct Elements {
    f32 x[kTogether], weight[kTogether];
  };
  TARN_DEVICE static Elements read(const Args& args, const f32* x, u32 first) {
    Elements e{};
    TARN_UNROLL(kTogether) for (u32 j = 0; j < kTogether; ++j) {
      const u32 i = first + j * kThreads;
      if (i >= args.d) continue;
      e.x[j] = x[i];
      e.weight[j] = args.weight[i];
    }
    return e;
  }

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const Shared<f32> partial = cta.shared<f32>(kThreads / kWarpLanes);
    const u32 n = cta.block();
    if (n >= load<u32>(args.n_rows)) return;
    const f32* x = args.x + n * args.x_stride;
    Elements e = read(args, x, cta.thread());
    f32 squares = 0.0f;
    TARN_UNROLL(kTogether) for (u32 j = 0; j < kTogether; ++j) squares = squares + e.x[j] * e.x[j];
    for (u32 i = cta.thread() + kTogether * kThreads; i < args.d; i += kThreads) {
      squares = squares + x[i] * x[i];
    }
    const f32 mean = sum_cta(cta, squares, partial) / static_cast<f32>(args.d);
    const f32 r = 1.0f / sqrt(mean + args.eps);
    for (u32 first = cta.thread(); first < args.d; first += kTogether * kThreads) {
      if (first != cta.thread()) e = read(args, x, first);
      TARN_UNROLL(kTogether) for (u32 j = 0; j < kTogether; ++j) {
        const u32 i = first + j * kThreads;
        if (i >= args.d) continue;
        const f32 value = (e.x[j] * r) * e.weight[j];
        if (args.out != nullptr) store(args.out + n * args.out_stride + i, value);
        // Whole warps come here: 32 divides d where this is wanted.
        if (args.quantized.q != nullptr) quantize_element(cta, value, args.quantized, n, args.d, i);
      }
    }
  }
};

struct RmsNormHeads {
  static constexpr u32 kThreads = 128;
  static constexpr u32 kHeads = kThreads / kWarpLanes;
  using Args = GpuRmsNormArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 head = cta.block() * kHeads + cta.warp();
    if (n >= load<u32>(args.n_rows) || head >= args.n_heads) return;  // a whole warp
    const f32* x = args.x + n * args.x_stride + u64{head} * args.d;
    f32* out = args.out + n * args.out_stride + u64{head} * args.d;
    f32 squares = 0.0f;
    for (u32 i = cta.lane(); i < args.d; i += kWarpLanes) squares = squares + x[i] * x[i];
    const f32 mean = sum_warp(cta, squares) / static_cast<f32>(args.d);
    const f32 r = 1.0f / sqrt(mean + args.eps);
    for (u32 i = cta.lane(); i < args.d; i += kWarpLanes) {
      store(out + i, (x[i] * r) * args.weight[i]);
    }
  }
};

}  // namespace

void rms_norm_gpu(const GpuRmsNormArgs& args, GpuStream* stream) {
  if (args.n_heads == 1) {
    launch<RmsNormRows>({.n_ctas = args.rows_max, .shared_bytes = RmsNormRows::kSharedBytes},
                        stream, args);
    return;
  }
  const u32 n_ctas = (args.n_heads + RmsNormHeads::kHeads - 1) / RmsNormHeads::kHeads;
  launch<RmsNormHeads>({.n_ctas = n_ctas, .n_ctas_y = args.rows_max}, stream, args);
}

void norm_kernels(const KernelSink& sink) { tell<RmsNormRows, RmsNormHeads>(sink); }

}  // namespace tarn::kernels::TARN_GPU
