// f32, f16 and bf16 weights; see matmul_float_avx512.cpp. Up to 3 activation rows share a weight's
// load, half a tile (8 rows) at a time: 12 partial sums, the weights and x fill the 16 registers.
// One activation row alone takes both halves together, as they share lines of memory.
#include <immintrin.h>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_isa.h"

namespace tarn::kernels {
namespace {

constexpr u32 kActs = 3;
constexpr u32 kPartials = 4;
constexpr u32 kHalfRows = 8;
constexpr u64 kAheadBytes = 2048;  // of weights, fetched before they are needed

struct F32 {
  static constexpr u64 kBytes = 4;
  static __m256 load(const u8* at) { return _mm256_loadu_ps(reinterpret_cast<const f32*>(at)); }
};

struct F16 {
  static constexpr u64 kBytes = 2;
  static __m256 load(const u8* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
};

struct Bf16 {
  static constexpr u64 kBytes = 2;
  static __m256 load(const u8* at) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

template <class Type, u32 kRows>
void add_k(const u8* w, const f32* x, u64 x_stride, __m256 (&partials)[kRows]) {
  const __m256 weights = Type::load(w);
  for (u32 a = 0; a < kRows; ++a) {
    partials[a] = _mm256_fmadd_ps(_mm256_set1_ps(x[a * x_stride]), weights, partials[a]);
  }
}

template <u32 kRows>
void store_half(const MatmulArgs& args, u64 row, u64 act, const __m256 (&p)[kPartials][kRows]) {
  if (row >= args.n_out) return;
  const u64 n_rows = args.n_out - row < kHalfRows ? args.n_out - row : kHalfRows;
  for (u32 a = 0; a < kRows; ++a) {
    f32 values[kHalfRows];
    _mm256_storeu_ps(
        values, _mm256_add_ps(_mm256_add_ps(p[0][a], p[1][a]), _mm256_add_ps(p[2][a], p[3][a])));
    f32* out = args.out + (act + a) * args.out_stride + row;
    for (u64 r = 0; r < n_rows; ++r) {
      out[r] = args.bias != nullptr ? values[r] + args.bias[row + r] : values[r];
    }
  }
}

// kHalves halves of a tile from `half` on, kRows activation rows from `act` on.
template <class Type, u32 kRows, u32 kHalves>
void add_halves(const MatmulArgs& args, u64 tile, u32 half, u64 act) {
  constexpr u64 kStep = Type::kBytes * kTileRows, kHalfBytes = Type::kBytes * kHalfRows;
  const u8* w = static_cast<const u8*>(args.weights) + tile * args.k * kStep + half * kHalfBytes;
  const f32* x = args.x + act * args.x_stride;
  __m256 p[kHalves][kPartials][kRows];
  for (auto& half_sums : p) {
    for (auto& partials : half_sums) {
      for (__m256& sum : partials) sum = _mm256_setzero_ps();
    }
  }
  const auto add = [&](u32 k, u32 j) {
    for (u32 h = 0; h < kHalves; ++h) {
      add_k<Type>(w + j * kStep + h * kHalfBytes, x + k + j, args.x_stride, p[h][j]);
    }
  };
  u32 k = 0;
  for (; k + kPartials <= args.k; k += kPartials, w += kPartials * kStep) {
    for (u64 i = 0; i < kPartials * kStep; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAheadBytes + i), _MM_HINT_T0);
    }
    for (u32 j = 0; j < kPartials; ++j) add(k, j);
  }
  if (k < args.k) add(k, 0);
  if (k + 1 < args.k) add(k, 1);
  if (k + 2 < args.k) add(k, 2);
  for (u32 h = 0; h < kHalves; ++h) {
    store_half<kRows>(args, tile * kTileRows + (half + h) * kHalfRows, act, p[h]);
  }
}

template <class Type, u32 kRows>
void add_tile(const MatmulArgs& args, u64 tile, u64 act) {
  if constexpr (kRows == 1) {
    add_halves<Type, 1, 2>(args, tile, 0, act);
  } else {
    add_halves<Type, kRows, 1>(args, tile, 0, act);
    add_halves<Type, kRows, 1>(args, tile, 1, act);
  }
}

template <class Type>
void matmul_of(const MatmulArgs& args) {
  for (u64 tile = args.tile_begin; tile < args.tile_end; ++tile) {
    u64 act = 0;
    for (; act + kActs <= args.n_acts; act += kActs) add_tile<Type, kActs>(args, tile, act);
    const u64 n_left = args.n_acts - act;
    if (n_left == 2) add_tile<Type, 2>(args, tile, act);
    if (n_left == 1) add_tile<Type, 1>(args, tile, act);
  }
}

}  // namespace

void matmul_float_avx2(const MatmulArgs& args) {
  if (args.type == TensorType::f32) return matmul_of<F32>(args);
  if (args.type == TensorType::f16) return matmul_of<F16>(args);
  matmul_of<Bf16>(args);
}

}  // namespace tarn::kernels
