// kernels/attn/kv_append_cuda.cu: a warp for each 32 elements of a row's K or V of one head.
#include "kernels/attn/pages_cta.h"
#include "kernels/common/reduce_cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct KvAppend {
  static constexpr u32 kThreads = 128;
  using Args = GpuKvAppendArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const GpuPages& pages = args.pages;
    const u32 n = cta.block_y();
    const u32 pieces = (pages.head_dim + kKvBlock - 1) / kKvBlock;  // of a vector
    const u32 at = cta.block() * (kThreads / kWarpLanes) + cta.warp();
    const u32 vector = at / pieces, piece = at % pieces;
    if (n >= load<u32>(args.n_rows) || vector >= 2 * pages.n_kv_heads) return;  // a whole warp
    const u32 kv_head = vector / 2;
    const bool is_k = vector % 2 == 0;
    const u32 i = piece * kKvBlock + cta.lane();
    const f32* x = is_k ? args.k + n * args.k_stride : args.v + n * args.v_stride;
    const f32 value = i < pages.head_dim ? x[u64{kv_head} * pages.head_dim + i] : 0.0f;
    u8* out = slot_address(pages, n, kv_head, args.positions[n]) +
              (is_k ? 0 : vector_bytes(pages.type, pages.head_dim));
    if (pages.type == KvType::f16) {
      if (i < pages.head_dim) store(out + 2 * i, narrow_f16(value));
      return;
    }
    const u32 bits = max_warp(cta, bits_of(value) & 0x7fffffffu);
    const f32 d = float_of(bits) / 127.0f;
    const u16 half = narrow_f16(d);
    const bool usable = half != 0 && half < 0x7c00;
    const f32 inverse = 1.0f / d;
    const f32 rounded = (value * inverse + 12582912.0f) - 12582912.0f;
    out += piece * kKvBlockBytes;
    if (cta.lane() == 0) store(out, half);
    out[2 + cta.lane()] = static_cast<u8>(usable ? static_cast<i32>(rounded) : 0);
  }
};

}  // namespace

void kv_append_gpu(const GpuKvAppendArgs& args, GpuStream* stream) {
  const u32 pieces = (args.pages.head_dim + kKvBlock - 1) / kKvBlock;
  constexpr u32 kWarps = KvAppend::kThreads / kWarpLanes;
  const u32 n_ctas = (2 * args.pages.n_kv_heads * pieces + kWarps - 1) / kWarps;
  launch<KvAppend>({.n_ctas = n_ctas, .n_ctas_y = args.rows_max}, stream, args);
}

void kv_append_kernels(const KernelSink& sink) { tell<KvAppend>(sink); }

}  // namespace tarn::kernels::TARN_GPU
