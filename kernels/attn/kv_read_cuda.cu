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
    const auto [kv_head, piece, i, is_k, is_there] = kv_piece(cta, pages, kThreads);
    f32* out = is_k ? args.k : args.v;
    if (!is_there || out == nullptr || i >= pages.head_dim) return;
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
  launch<KvRead>({.n_ctas = kv_ctas(args.pages, KvRead::kThreads), .n_ctas_y = args.n_rows}, stream,
                 args);
}

void kv_read_kernels(const KernelSink& sink) { tell<KvRead>(sink); }

}  // namespace tarn::kernels::TARN_GPU
