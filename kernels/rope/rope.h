// Rotary position embedding (Su et al. 2021, arXiv:2104.09864, section 3.4) of n_heads heads of
// each row, in place. Turns pair i of a head by the angle pos * base^(-2i/n_rot) / factor[i]:
//
//   a' = a*cos - b*sin,  b' = a*sin + b*cos       (two products and one sum each, no FMA)
//   adjacent   (a, b) = (x[2i], x[2i+1])             GGUF's llama
//   halves     (a, b) = (x[i], x[i + n_rot/2])       GGUF's qwen2, qwen3
//
//   x          [n_rows, x_stride] f32; head h of a row starts at h * head_dim; dims >= n_rot stay
//   cos, sin   [n_rows, n_rot/2] f32, from rope_table()
//
// rope_table computes the angle in f64 with our own range reduction and polynomials, because libm
// picks variants per CPU. |error| of cos and sin <= 2^-24 + 2^-40 for positions below 2^24; the
// same bits on every ISA.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

enum class RopePairs : u8 { adjacent, halves };

struct RopeTableArgs {
  const u32* positions;  // [n_rows]
  u32 n_rows;
  u32 n_rot;            // even
  const f64* inv_freq;  // [n_rot/2], base^(-2i/n_rot) / factor[i], from rope_frequencies()
  f32* cos;
  f32* sin;
};
void rope_table(const RopeTableArgs& args);

// inv_freq[i] = base^(-2i/n_rot) * scale / (factors ? factors[i] : 1); our own pow; relative error
// < 1e-14.
void rope_frequencies(f64 base, f64 scale, u32 n_rot, const f32* factors, f64* inv_freq);

struct RopeArgs {
  f32* x;
  u64 x_stride;
  const f32* cos;
  const f32* sin;
  u32 n_rows;
  u32 n_heads;
  u32 head_dim;
  u32 n_rot;  // <= head_dim
  RopePairs pairs;
};
using RopeFn = void (*)(const RopeArgs& args);
void rope_generic(const RopeArgs& args);
void rope_avx2(const RopeArgs& args);
void rope_avx512(const RopeArgs& args);

}  // namespace tarn::kernels
