//   out[n, r] = sum over k of x[n, k] * w[r, k]  (+ bias[r])
//               n in [0, n_acts), r in the rows of the tiles asked for
//
//   weights  tiled layout of kernels/quant/tensor_type.h, n_out rows of k
//   x        f32, f16, bf16 weights: `x` [n_acts, x_stride] f32, as it is
//            quantised weights: q, scales, sums of kernels/quant/activations.h
//   out      [n_acts, out_stride] f32; only columns [16*tile_begin, min(16*tile_end, n_out)) are
//            written; aliases nothing
//
// A type has one arithmetic for all n_acts, tile ranges and ISAs: IEEE f32 operations in the order
// below, fused where it says fma, and no sum crosses lanes. So generic, AVX2 and AVX-512 have the
// same bits, and so do 1 and 512 rows.
//
//   f32, f16, bf16   four partial sums p[j], j = k mod 4, each over ascending k from 0:
//                    p[j] = fma(x[k], w[k], p[j]); out = (p[0]+p[1]) + (p[2]+p[3])
//   quantised        acc = 0; then, for each 32 k, a strip's term with d_x of the activations. All
//                    of i, s, m are exact i32. q and w are the integers of both sides, w as
//                    kernels/quant/types has it. dot16 and sum16 are those of 16 k, sc and m the
//                    scales and minima of a type that has them:
//   scaled             i = dot32(q, w); acc = fma(f32(i), d_w * d_x, acc), with d_w = d, or d * sc
//                      (exact) for iq4_xs
//   two scales         i = sc0 * dot16 + sc1 * dot16; acc = fma(f32(i), d * d_x, acc)
//   with a minimum     i = dot32(q, w), s = sum32(q); t = fma(f32(i), d*sc, -(f32(s) * (dmin*m)));
//                      acc = fma(t, d_x, acc); q4_1 and q5_1 add their minimum: sc = 1, and its
//                      negative for dmin*m
//   two of each        i = sc0 * dot16 + sc1 * dot16, m = m0 * sum16 + m1 * sum16;
//                      t = fma(f32(i), d, -(f32(m) * dmin)); acc = fma(t, d_x, acc)
//   then             out = acc, or acc + bias[r]
//
// Bound  f32 types: |error| <= (k/4 + 3) * eps * sum|x*w|. Quantised: against the exact product of
//        the dequantised operands, (k/32 + 4) * eps * sum over blocks of |term|, where both parts
//        of a term with a minimum count, since they may cancel.
// Cost   reads the tiles once per 64 activation rows: decode is bound by weight bytes, prefill by
//        integer multiply-adds. Up to 64 KiB of stack.
#pragma once

#include "kernels/quant/tensor_type.h"

namespace tarn::kernels {

struct MatmulArgs {
  TensorType type;
  const void* weights;  // tile 0; 64-byte aligned
  u64 n_out;
  u32 k;
  u64 tile_begin, tile_end;  // [begin, end) in tiles of 16 output rows
  u32 n_acts;
  const f32* x;       // float types
  u64 x_stride;       // elements
  const i8* q;        // quantised types: [n_acts, k]
  const f32* scales;  // [n_acts, k/32]
  const i32* sums;    // [n_acts, k/16]
  const f32* bias;    // [n_out] or nullptr
  f32* out;
  u64 out_stride;  // elements
};
using MatmulFn = void (*)(const MatmulArgs& args);

void matmul_generic(const MatmulArgs& args);
void matmul_avx2(const MatmulArgs& args);
void matmul_avx512(const MatmulArgs& args);

// Whether the product reads the quantised form of the activations.
constexpr bool wants_quantized_activations(TensorType type) {
  return type != TensorType::f32 && type != TensorType::f16 && type != TensorType::bf16;
}

}  // namespace tarn::kernels
