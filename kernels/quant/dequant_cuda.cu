// kernels/quant/dequant_cuda.cu: a thread 8 neighbouring elements.
#include "kernels/common/cta.h"
#include "kernels/quant/dequant_gpu.h"

namespace tarn::kernels::TARN_GPU {
namespace {

constexpr u32 kCtaThreads = 128;
constexpr u32 kElements = 8;  // a thread's

constexpr u32 ctas_for(u32 k) { return (k / kElements + kCtaThreads - 1) / kCtaThreads; }

struct Eight {
  f32 v[kElements];
};

// Byte i of two words.
TARN_DEVICE u32 byte_at(const U32x2& words, u32 i) { return words.w[i / 4] >> (i % 4 * 8) & 0xffu; }

TARN_DEVICE Eight eight_q4_k(const u8* tile, u64 k, u64 row, u32 i) {
  const u32 strip = i / 32, half = i % 32 / 16;
  const U32x2 codes = load<U32x2>(tile + row * (k / 2) + u64{strip} * 16 + i % 16);
  const U32x4 head = load<U32x4>(tile + gpu_q4_k_heads(k) + (row * (k / 256) + strip / 8) * 16);
  const u32 bit = 12 * (strip % 8);
  const u32 first = bit / 32 == 0 ? head.w[1] : bit / 32 == 1 ? head.w[2] : head.w[3];
  const u32 next = bit / 32 == 0 ? head.w[2] : head.w[3];
  const u32 bits = funnel_right(first, next, bit % 32);
  const f32 d = widen_f16(static_cast<u16>(head.w[0] & 0xffffu));
  const f32 dmin = widen_f16(static_cast<u16>(head.w[0] >> 16));
  const f32 scale = d * static_cast<f32>(bits & 63u);
  const f32 min = dmin * static_cast<f32>(bits >> 6 & 63u);
  Eight out;
  for (u32 e = 0; e < kElements; ++e) {
    const u32 code = byte_at(codes, e) >> (4 * half) & 15u;
    out.v[e] = scale * static_cast<f32>(code) - min;
  }
  return out;
}

TARN_DEVICE Eight eight_q6_k(const u8* tile, u64 k, u64 row, u32 i) {
  const u32 strip = i / 32, half = i % 32 / 16;
  const U32x2 low = load<U32x2>(tile + row * (k / 2) + u64{strip} * 16 + i % 16);
  const u32 high =
      load<u32>(tile + gpu_q6_k_high(k) + row * (k / 4) + u64{strip} * 8 + u64{half} * 4);
  const i8 scale_code =
      static_cast<i8>(load<u8>(tile + gpu_q6_k_scales(k) + row * (k / 16) + i / 16));
  const f32 d = widen_f16(load<u16>(tile + gpu_q6_k_d(k) + (row * (k / 256) + strip / 8) * 2));
  const f32 scale = d * static_cast<f32>(scale_code);
  Eight out;
  for (u32 e = 0; e < kElements; ++e) {
    const u32 place = i % 16 + e;  // within the 16
    const u32 nibble = byte_at(low, e) >> (4 * half) & 15u;
    const u32 upper = (high >> (place % 4 * 8 + place / 4 * 2) & 3u) ^ 2u;
    out.v[e] = scale * static_cast<f32>(static_cast<i32>(nibble | upper << 4) - 32);
  }
  return out;
}

TARN_DEVICE Eight eight_q8_0(const u8* tile, u64 k, u64 row, u32 i) {
  const U32x2 codes = load<U32x2>(tile + row * k + i);
  const f32 d = widen_f16(load<u16>(tile + gpu_q8_0_d(k) + (row * (k / 32) + i / 32) * 2));
  Eight out;
  for (u32 e = 0; e < kElements; ++e) {
    out.v[e] = d * static_cast<f32>(static_cast<i8>(byte_at(codes, e)));
  }
  return out;
}

TARN_DEVICE Eight eight_f16(const u8* tile, u64 k, u64 row, u32 i) {
  const U32x4 words = load<U32x4>(tile + (row * k + i) * 2);
  Eight out;
  for (u32 e = 0; e < kElements; ++e) {
    out.v[e] = widen_f16(static_cast<u16>(words.w[e / 2] >> (e % 2 * 16) & 0xffffu));
  }
  return out;
}

// Elements [i, i + 8) of a row.
TARN_DEVICE Eight eight_at(TensorType type, const void* weights, u64 k, u64 row, u32 i) {
  const u8* tile = static_cast<const u8*>(weights) + row / kTileRows * gpu_tile_bytes(type, k);
  const u64 in_tile = row % kTileRows;
  switch (type) {
    case TensorType::f16:
      return eight_f16(tile, k, in_tile, i);
    case TensorType::q8_0:
      return eight_q8_0(tile, k, in_tile, i);
    case TensorType::q4_k:
      return eight_q4_k(tile, k, in_tile, i);
    default:
      return eight_q6_k(tile, k, in_tile, i);
  }
}

struct Embed {
  static constexpr u32 kThreads = kCtaThreads;
  using Args = GpuEmbedArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    const u32 n = cta.block_y();
    const u32 i = (cta.block() * kThreads + cta.thread()) * kElements;
    if (n >= load<u32>(args.n_rows) || i >= args.k) return;
    const Eight values = eight_at(args.type, args.weights, args.k, args.tokens[n], i);
    f32* out = args.out + n * args.out_stride + i;
    for (u32 e = 0; e < kElements; ++e) store(out + e, values.v[e]);
  }
};

struct Dequantize {
  static constexpr u32 kThreads = kCtaThreads;
  using Args = GpuDequantizeArgs;

  TARN_DEVICE static void run(Cta& cta, const Args& args) {
    // Rows along x: y ends at 65,535, below a vocabulary.
    const u32 row_ctas = ctas_for(args.k);
    const u64 row = cta.block() / row_ctas;
    const u32 i = (cta.block() % row_ctas * kThreads + cta.thread()) * kElements;
    if (i >= args.k) return;
    const Eight values = eight_at(args.type, args.weights, args.k, row, i);
    U32x4 words;
    for (u32 e = 0; e < kElements / 2; ++e) {
      words.w[e] = narrow_f16(values.v[2 * e]) | u32{narrow_f16(values.v[2 * e + 1])} << 16;
    }
    store(args.out + row * args.k + i, words);
  }
};

}  // namespace

void embed_gpu(const GpuEmbedArgs& args, GpuStream* stream) {
  launch<Embed>({.n_ctas = ctas_for(args.k), .n_ctas_y = args.rows_max}, stream, args);
}

void dequantize_gpu(const GpuDequantizeArgs& args, GpuStream* stream) {
  launch<Dequantize>({.n_ctas = ctas_for(args.k) * args.n_out}, stream, args);
}

void dequant_kernels(const KernelSink& sink) { tell<Embed, Dequantize>(sink); }

}  // namespace tarn::kernels::TARN_GPU
