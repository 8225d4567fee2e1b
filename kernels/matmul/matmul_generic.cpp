// The portable body of matmul, and the one to read first.
#include "kernels/common/half.h"
#include "kernels/common/scalar.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quant/strip.h"

namespace tarn::kernels {
namespace {

constexpr u32 kActsAtOnce = 16;  // activation rows that share one unpacking of the weights

using TileSums = f32[kTileRows];

void store_tile(const MatmulArgs& args, u64 tile, u64 act, const f32* sums) {
  const u64 row = tile * kTileRows;
  const u64 n_rows = args.n_out - row < kTileRows ? args.n_out - row : kTileRows;
  f32* out = args.out + act * args.out_stride + row;
  for (u64 r = 0; r < n_rows; ++r) {
    out[r] = args.bias != nullptr ? sums[r] + args.bias[row + r] : sums[r];
  }
}

f32 weight(TensorType type, const void* tile, u64 i) {
  if (type == TensorType::f32) return static_cast<const f32*>(tile)[i];
  const u16 half = static_cast<const u16*>(tile)[i];
  return type == TensorType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

void float_tile(const MatmulArgs& args, u64 tile, const u8* weights, u64 act_begin, u32 n) {
  f32 partial[kActsAtOnce][4][kTileRows] = {};
  for (u64 k = 0; k < args.k; ++k) {
    f32 w[kTileRows];
    for (u32 r = 0; r < kTileRows; ++r) w[r] = weight(args.type, weights, k * kTileRows + r);
    for (u32 a = 0; a < n; ++a) {
      const f32 x = args.x[(act_begin + a) * args.x_stride + k];
      f32* p = partial[a][k % 4];
      for (u32 r = 0; r < kTileRows; ++r) p[r] = fma_f32(x, w[r], p[r]);
    }
  }
  for (u32 a = 0; a < n; ++a) {
    TileSums sums;
    const auto& p = partial[a];
    for (u32 r = 0; r < kTileRows; ++r) sums[r] = (p[0][r] + p[1][r]) + (p[2][r] + p[3][r]);
    store_tile(args, tile, act_begin + a, sums);
  }
}

i32 dot16(const i8* w, const i8* q) {
  i32 sum = 0;
  for (u32 i = 0; i < 16; ++i) sum += i32{w[i]} * i32{q[i]};
  return sum;
}

// acc, and one row's 32 weights times one activation row's 32.
template <Term kTerm>
f32 add_strip(f32 acc, const Strip& strip, const i8* w, const i8* q, const i32* sums, f32 d_x) {
  const i32 dot_low = dot16(w, q), dot_high = dot16(w + 16, q + 16);
  if constexpr (kTerm == Term::scaled) {
    const f32 scale = strip.d * static_cast<f32>(strip.scale[0]);
    return fma_f32(static_cast<f32>(dot_low + dot_high), scale * d_x, acc);
  } else if constexpr (kTerm == Term::with_minimum) {
    const f32 scale = strip.d * static_cast<f32>(strip.scale[0]);
    const f32 low = strip.dmin * static_cast<f32>(strip.min[0]);
    const f32 dot = static_cast<f32>(dot_low + dot_high);
    const f32 sum = static_cast<f32>(sums[0] + sums[1]);
    return fma_f32(fma_f32(dot, scale, -(sum * low)), d_x, acc);
  } else {
    const i32 dot = strip.scale[0] * dot_low + strip.scale[1] * dot_high;
    if constexpr (kTerm == Term::two_scales) {
      return fma_f32(static_cast<f32>(dot), strip.d * d_x, acc);
    } else {
      const i32 sum = strip.min[0] * sums[0] + strip.min[1] * sums[1];
      const f32 below = static_cast<f32>(sum) * strip.dmin;
      return fma_f32(fma_f32(static_cast<f32>(dot), strip.d, -below), d_x, acc);
    }
  }
}

template <class Type>
void quantized_tile(const MatmulArgs& args, u64 tile, const u8* weights, u64 act_begin, u32 n) {
  constexpr TypeTraits traits = Type::kTraits;
  TileSums acc[kActsAtOnce] = {};
  for (u64 k = 0; k < args.k; k += kStripElems) {
    const u8* block = weights + k / traits.block_elems * traits.block_bytes * kTileRows;
    const u32 strip_idx = static_cast<u32>(k % traits.block_elems / kStripElems);
    for (u32 r = 0; r < kTileRows; ++r) {
      const Strip strip = strip_from_tile(args.type, block, r, strip_idx);
      i8 w[kStripElems];
      for (u32 e = 0; e < kStripElems; ++e) w[e] = static_cast<i8>(strip.codes[e] - strip.zero);
      for (u32 a = 0; a < n; ++a) {
        const u64 at = (act_begin + a) * args.k + k;
        acc[a][r] = add_strip<Type::kTerm>(acc[a][r], strip, w, args.q + at, args.sums + at / 16,
                                           args.scales[at / kStripElems]);
      }
    }
  }
  for (u32 a = 0; a < n; ++a) store_tile(args, tile, act_begin + a, acc[a]);
}

}  // namespace

void matmul_generic(const MatmulArgs& args) {
  const u64 tile_bytes = tiled_bytes(args.type, kTileRows, args.k);
  for (u64 tile = args.tile_begin; tile < args.tile_end; ++tile) {
    const u8* weights = static_cast<const u8*>(args.weights) + tile * tile_bytes;
    for (u64 act = 0; act < args.n_acts; act += kActsAtOnce) {
      const u64 left = args.n_acts - act;
      const u32 n = static_cast<u32>(left < kActsAtOnce ? left : kActsAtOnce);
      const bool is_quantized = QuantTypes::visit(
          args.type, [&]<class Type>(Type) { quantized_tile<Type>(args, tile, weights, act, n); });
      if (!is_quantized) float_tile(args, tile, weights, act, n);
    }
  }
}

}  // namespace tarn::kernels
