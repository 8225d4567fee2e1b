// kernels/attn/kv_read_cuda.cu: a warp for each 32 elements of a slot's K or V of one head.
#include "kernels/attn/pages_cta.h"
#include "kernels/common/cta.h"

namespace tarn::kernels::TARN_GPU {
namespace {

struct KvRead {
  static constexpr u32 kThreads = 128;
  using Args = GpuKvReadArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const GpuPages& pages = args.pages;
    const u32 n = cta.block_y();
    const u32 pieces = (pages.head_dim + kKvBlock - 1) / kKvBlock;  // of a vector
    const u32 at = cta.block() * (kThreads / kWarpLanes) + cta.warp();
    const u32 vector = at / pieces, piece = at % pieces;
    if (vector >= 2 * pages.n_kv_heads) return;
    const u32 kv_head = vector / 2;
    const bool is_k = vector % 2 == 0;
    f32* out = is_k ? args.k : args.v;
    const u32 i = piece * kKvBlock + cta.lane();
    if (out == nullptr || i >= pages.head_dim) return;
    const u8* in = slot_address(pages, 0, kv_head, args.first_slot + n) +
                   (is_k ? 0 : vector_bytes(pages.type, pages.head_dim));
    out += n * (is_k ? args.k_stride : args.v_stride) + u64{kv_head} * pages.head_dim + i;
    store(out, pages.type == KvType::f16 ? widen_f16(load<u16>(in + 2 * i))
                                         : of_block(pages.type, in, piece, cta.lane()));
  }

 private:
  TARN_DEVICE static f32 of_block(KvType type, const u8* in, u32 piece, u32 lane) {
    in += piece * kv_block_bytes(type);
    const f32 d = widen_f16(load<u16>(in));
    if (type == KvType::q8_0) return d * static_cast<f32>(static_cast<i8>(load<u8>(in + 2 + lane)));
    constexpr u32 kHalf = kKvBlock / 2;
    const u32 codes = load<u8>(in + 2 + lane % kHalf);
    return d * static_cast<f32>(static_cast<i32>(lane < kHalf ? codes & 15u : codes >> 4) - 8);
  }
};

}  // namespace

void kv_read_gpu(const GpuKvReadArgs& args, GpuStream* stream) {
  const u32 pieces = (args.pages.head_dim + kKvBlock - 1) / kKvBlock;
  constexpr u32 kWarps = KvRead::kThreads / kWarpLanes;
  const u32 n_ctas = (2 * args.pages.n_kv_heads * pieces + kWarps - 1) / kWarps;
  launch<KvRead>({.n_ctas = n_ctas, .n_ctas_y = args.n_rows}, stream, args);
}

void kv_read_kernels(const KernelSink& sink) { tell<KvRead>(sink); }

}  // namespace tarn::kernels::TARN_GPU
