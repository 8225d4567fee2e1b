// f32, f16 and bf16 weights: lane r is row r of a tile, one broadcast of x per k and activation
// row. Up to 4 activation rows share a weight's load; their 4 x 4 partial sums stay in registers.
#include <immintrin.h>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_isa.h"

namespace tarn::kernels {
namespace {

constexpr u32 kActs = 4;
constexpr u32 kPartials = 4;
constexpr u64 kAheadBytes = 2048;  // of weights; with 4 rows the core itself sees less far ahead

struct F32 {
  static constexpr u64 kBytes = 4;
  static __m512 load(const u8* at) { return _mm512_loadu_ps(at); }
};

struct F16 {
  static constexpr u64 kBytes = 2;
  static __m512 load(const u8* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
};

struct Bf16 {
  static constexpr u64 kBytes = 2;
  static __m512 load(const u8* at) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
};

template <class Type, u32 kRows>
void add_k(const u8* w, const f32* x, u64 x_stride, __m512 (&partials)[kRows]) {
  const __m512 weights = Type::load(w);
  for (u32 a = 0; a < kRows; ++a) {
    partials[a] = _mm512_fmadd_ps(_mm512_set1_ps(x[a * x_stride]), weights, partials[a]);
  }
}

template <class Type, u32 kRows>
void one_tile(const MatmulArgs& args, u64 tile, u64 act) {
  constexpr u64 kStep = Type::kBytes * kTileRows;
  const u8* w = static_cast<const u8*>(args.weights) + tile * args.k * kStep;
  const f32* x = args.x + act * args.x_stride;
  __m512 p[kPartials][kRows];
  for (auto& row : p) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
  u32 k = 0;
  for (; k + kPartials <= args.k; k += kPartials, w += kPartials * kStep) {
    for (u64 i = 0; i < kPartials * kStep; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAheadBytes + i), _MM_HINT_T0);
    }
    for (u32 j = 0; j < kPartials; ++j) {
      add_k<Type>(w + j * kStep, x + k + j, args.x_stride, p[j]);
    }
  }
  if (k < args.k) add_k<Type>(w, x + k, args.x_stride, p[0]);
  if (k + 1 < args.k) add_k<Type>(w + kStep, x + k + 1, args.x_stride, p[1]);
  if (k + 2 < args.k) add_k<Type>(w + 2 * kStep, x + k + 2, args.x_stride, p[2]);

  const u64 row = tile * kTileRows;
  const u64 n_rows = args.n_out - row < kTileRows ? args.n_out - row : kTileRows;
  const __mmask16 mask = static_cast<__mmask16>((1u << n_rows) - 1);
  for (u32 a = 0; a < kRows; ++a) {
    __m512 sum = _mm512_add_ps(_mm512_add_ps(p[0][a], p[1][a]), _mm512_add_ps(p[2][a], p[3][a]));
    if (args.bias != nullptr) {
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, args.bias + row));
    }
    _mm512_mask_storeu_ps(args.out + (act + a) * args.out_stride + row, mask, sum);
  }
}

template <class Type>
void matmul_of(const MatmulArgs& args) {
  for (u64 tile = args.tile_begin; tile < args.tile_end; ++tile) {
    u64 act = 0;
    for (; act + kActs <= args.n_acts; act += kActs) one_tile<Type, kActs>(args, tile, act);
    const u64 n_left = args.n_acts - act;
    if (n_left == 3) one_tile<Type, 3>(args, tile, act);
    if (n_left == 2) one_tile<Type, 2>(args, tile, act);
    if (n_left == 1) one_tile<Type, 1>(args, tile, act);
  }
}

}  // namespace

void matmul_float_avx512(const MatmulArgs& args) {
  if (args.type == TensorType::f32) return matmul_of<F32>(args);
  if (args.type == TensorType::f16) return matmul_of<F16>(args);
  matmul_of<Bf16>(args);
}

}  // namespace tarn::kernels
