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
    const auto [kv_head, piece, i, is_k, is_there] = kv_piece(cta, pages, kThreads);
    if (n >= load<u32>(args.n_rows) || !is_there) return;  // a whole warp
    const f32* x = is_k ? args.k + n * args.k_stride : args.v + n * args.v_stride;
    const f32 value = i < pages.head_dim ? x[u64{kv_head} * pages.head_dim + i] : 0.0f;
    u8* out = slot_address(pages, n, kv_head, args.slots[n]) +
              (is_k ? 0 : vector_bytes(pages.type, pages.head_dim));
    if (pages.type == KvType::f16) {
      if (i < pages.head_dim) store(out + 2 * i, narrow_f16(value));
      return;
    }
    out += piece * kv_block_bytes(pages.type);
    const u32 magnitude = max_warp(cta, bits_of(value) & kMagnitude);
    if (pages.type == KvType::q8_0) {
      const Scale scale = store_scale(cta, float_of(magnitude) / 127.0f, out);
      store(out + 2 + cta.lane(), static_cast<u8>(static_cast<i32>(scale.rounded(value))));
      return;
    }
    const Scale scale = store_scale(cta, largest(cta, value, magnitude) / -8.0f, out);
    const f32 q = scale.rounded(value);
    const u32 code = static_cast<u32>((q < 7.0f ? q : 7.0f) + 8.0f);
    const u32 high = cta.shuffle_xor(code, kKvBlock / 2);
    if (cta.lane() < kKvBlock / 2) store(out + 2 + cta.lane(), static_cast<u8>(code | high << 4));
  }

 private:
  static constexpr u32 kMagnitude = 0x7fffffffu;

  // The factor of a block's elements, or none where all are stored as 0.
  struct Scale {
    f32 inverse;
    bool usable;
    TARN_DEVICE f32 rounded(f32 value) const {
      return usable ? (value * inverse + 12582912.0f) - 12582912.0f : 0.0f;
    }
  };

  TARN_DEVICE static Scale store_scale(Cta& cta, f32 d, u8* out) {
    const u16 half = narrow_f16(d);
    const u32 stored = half & 0x7fffu;
    if (cta.lane() == 0) store(out, half);
    return {1.0f / d, stored != 0 && stored < 0x7c00};
  }

  // The first of the lanes' values with this magnitude, the largest; zero without a sign.
  TARN_DEVICE static f32 largest(Cta& cta, f32 value, u32 magnitude) {
    const u32 bits = bits_of(value);
    const bool is_largest = (bits & kMagnitude) == magnitude;
    const u32 first = max_warp(cta, is_largest ? (kWarpLanes - cta.lane()) * 2 + (bits >> 31) : 0);
    return float_of(magnitude == 0 ? 0 : magnitude | first << 31);
  }
};

}  // namespace

void kv_append_gpu(const GpuKvAppendArgs& args, GpuStream* stream) {
  launch<KvAppend>({.n_ctas = kv_ctas(args.pages, KvAppend::kThreads), .n_ctas_y = args.rows_max},
                   stream, args);
}

void kv_append_kernels(const KernelSink& sink) { tell<KvAppend>(sink); }

}  // namespace tarn::kernels::TARN_GPU
