// Quantised products without VNNI. The loops are those of matmul_avx512.cpp, with half a tile (8
// rows, one register of i32) at a time: activations packed into L1, weights unpacked once per block
// of activation rows. vpmaddubsw adds pairs of u8 * i8 products in i16 and would saturate, so each
// type adds up in i16 only as far as its codes allow (|q| <= 127):
//
//   q4_0, q4_1, q4_k          8 pairs of codes <= 15:   8 * 2 * 15 * 127 = 30480
//   q5_0, q5_1, q5_k, mxfp4   4 pairs of codes <= 31:   4 * 2 * 31 * 127 = 31496
//   q2_k, q3_k                4 pairs of codes <= 7, for scales of 16 elements
//   q6_k                      2 pairs of codes <= 63:   2 * 2 * 63 * 127 = 32004
//   q8_0, iq4_nl, iq4_xs      1 pair of |w| <= 128:         2 * 128 * 127 = 32512, the sign moved
//                             to q
#include <immintrin.h>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/quant/vector_avx2.h"

namespace tarn::kernels {
namespace {

constexpr u32 kSpanElems = 256;  // k at a time: a block of the k-quants, or 8 blocks of 32
constexpr u32 kSpanStrips = kSpanElems / kStripElems;
constexpr u32 kHalfRows = 8;

// 256 k of one activation row.
struct alignas(32) PackedAct {
  i8 q[kSpanElems];
  i32 sums[kSpanStrips];  // as the type wants them: Type::sum_of()
  f32 scales[kSpanStrips];
};

void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
__m256i broadcast(const i8* at) {
  i32 four;
  __builtin_memcpy(&four, at, sizeof four);
  return _mm256_set1_epi32(four);
}

// i16 sums of 4 k of each row, two to a row.
__m256i dot_pairs(__m256i codes, const i8* q) { return _mm256_maddubs_epi16(codes, broadcast(q)); }

__m256i add_pairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Pairs of products of one lane that add up in i16: 8, 4 or 2; 0: not even one, and codes are
// signed.
template <class Type>
inline constexpr u32 kPairs = [] {
  constexpr u32 kFit = 32767 / (2 * 127 * static_cast<u32>(Type::kMost - Type::kLeast));
  return kFit >= 8 ? 8u : kFit >= 4 ? 4u : kFit >= 2 ? 2u : 0u;
}();

// The codes' dot product with 32 activations.
template <u32 kPairs>
__m256i dot_codes(const __m256i (&codes)[kStripGroups], const i8* q) {
  static_assert(kPairs == 0 || kPairs == 4 || kPairs == 8);
  if constexpr (kPairs == 0) {
    __m256i dot = _mm256_setzero_si256();
    for (u32 g = 0; g < kStripGroups; ++g) {
      const __m256i x = broadcast(q + g * 4);
      const __m256i pairs =
          _mm256_maddubs_epi16(_mm256_abs_epi8(codes[g]), _mm256_sign_epi8(x, codes[g]));
      dot = _mm256_add_epi32(dot, add_pairs(pairs));
    }
    return dot;
  } else if constexpr (kPairs == 8) {
    __m256i pairs = dot_pairs(codes[0], q);
    for (u32 g = 1; g < kStripGroups; ++g) {
      pairs = _mm256_add_epi16(pairs, dot_pairs(codes[g], q + g * 4));
    }
    return add_pairs(pairs);
  } else {
    __m256i first = dot_pairs(codes[0], q), second = dot_pairs(codes[4], q + 16);
    for (u32 g = 1; g < 4; ++g) {
      first = _mm256_add_epi16(first, dot_pairs(codes[g], q + g * 4));
      second = _mm256_add_epi16(second, dot_pairs(codes[4 + g], q + 16 + g * 4));
    }
    return _mm256_add_epi32(add_pairs(first), add_pairs(second));
  }
}

__m256 add_scaled(__m256 sum, __m256i dot, __m256 d, f32 d_x) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(d, _mm256_set1_ps(d_x)), sum);
}

// The head of a block of 16 rows, read once for its strips.
struct NoHead {
  void read(const u8*) {}
};
template <class Type>
struct BlockHead : NoHead {};
template <ReadsScales Type>
struct BlockHead<Type> : Head<Type> {
  void read(const u8* block) { Head<Type>::template read<Half>(block); }
};

// A strip's weights of half a tile, for each term: read() takes them from the tile, add_to() adds
// the strip's term for one activation row, sum_of() is what it wants of the sums over 16.
template <class Type, Term kTerm>
struct Weights;

template <class Type>
struct Weights<Type, Term::scaled> {
  static constexpr bool kSigned = kPairs<Type> == 0;
  __m256i codes[kStripGroups];
  __m256 d;

  static i32 sum_of(const i32* sums) { return kSigned ? 0 : Type::kLeast * (sums[0] + sums[1]); }
  void read(const Half& v, const u8* block, const BlockHead<Type>& head, u32 s) {
    d = unpack_d<Type>(v, block);
    if constexpr (HasScales<Type>) d = _mm256_mul_ps(d, v.floats_of_i8(head.scales[s]));
  }
  __m256 add_to(__m256 sum, const PackedAct& act, u32 s) const {
    __m256i dot = dot_codes<kPairs<Type>>(codes, act.q + s * kStripElems);
    if constexpr (!kSigned) dot = _mm256_add_epi32(dot, _mm256_set1_epi32(act.sums[s]));
    return add_scaled(sum, dot, d, act.scales[s]);
  }
};

template <class Type>
struct Weights<Type, Term::with_minimum> {
  static constexpr bool kSigned = false;
  __m256i codes[kStripGroups];
  __m256 scale, low;

  // The bits of the f32 sum over 32.
  static i32 sum_of(const i32* sums) {
    const f32 sum = static_cast<f32>(sums[0] + sums[1]);
    i32 bits;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    return bits;
  }
  void read(const Half& v, const u8* block, const BlockHead<Type>& head, u32 s) {
    scale = unpack_d<Type>(v, block);
    low = v.f16(block + kTileOf<Type>.dmin);
    if constexpr (AddsMinimum<Type>) low = _mm256_xor_ps(low, _mm256_set1_ps(-0.0f));
    if constexpr (HasScales<Type>) {
      scale = _mm256_mul_ps(scale, v.floats_of_u8(head.scales[s]));
      low = _mm256_mul_ps(low, v.floats_of_u8(head.minima[s]));
    }
  }
  __m256 add_to(__m256 sum, const PackedAct& act, u32 s) const {
    const __m256i dot = dot_codes<kPairs<Type>>(codes, act.q + s * kStripElems);
    const __m256 sum_x = _mm256_castsi256_ps(_mm256_set1_epi32(act.sums[s]));
    const __m256 value = _mm256_fmsub_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_mul_ps(sum_x, low));
    return _mm256_fmadd_ps(value, _mm256_set1_ps(act.scales[s]), sum);
  }
};

// (even, odd) in i16, of each row.
__m256i zip(__m128i even, __m128i odd) {
  return _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
}

// (sum over the first 16, over the second 16) in i16.
i32 two_sums(const i32* sums) {
  return static_cast<i32>((static_cast<u32>(sums[0]) & 0xFFFFu) | static_cast<u32>(sums[1]) << 16);
}

// start + sc0 * dot16 + sc1 * dot16. The scales, (sc, sc) in i16, take the place of vpmaddwd's
// ones.
template <u32 kPairs>
__m256i dot_scaled(__m256i start, const __m256i (&codes)[kStripGroups], const __m256i (&scales)[2],
                   const i8* q) {
  constexpr u32 kSteps = kPairs < 4 ? kPairs : 4;
  __m256i dot = start;
  for (u32 g = 0; g < kStripGroups; g += kSteps) {
    __m256i pairs = dot_pairs(codes[g], q + g * 4);
    for (u32 i = 1; i < kSteps; ++i) {
      pairs = _mm256_add_epi16(pairs, dot_pairs(codes[g + i], q + (g + i) * 4));
    }
    dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, scales[g / 4]));
  }
  return dot;
}

template <class Type>
struct Weights<Type, Term::two_scales> {
  static constexpr bool kSigned = false;
  __m256i codes[kStripGroups];
  __m256i scales[2];  // (sc, sc) in i16
  __m256i zeros;      // (kLeast * sc0, kLeast * sc1) in i16
  __m256 d;

  static i32 sum_of(const i32* sums) { return two_sums(sums); }
  void read(const Half& v, const u8* block, const BlockHead<Type>& head, u32 s) {
    const u8* bytes = block + kTileOf<Type>.scales + s * 2 * kTileRows;
    if constexpr (ReadsScales<Type>) bytes = head.scales[2 * s];
    const __m128i sc0 = _mm_cvtepi8_epi16(v.bytes(bytes));
    const __m128i sc1 = _mm_cvtepi8_epi16(v.bytes(bytes + kTileRows));
    scales[0] = zip(sc0, sc0);
    scales[1] = zip(sc1, sc1);
    zeros = _mm256_mullo_epi16(zip(sc0, sc1), _mm256_set1_epi16(Type::kLeast));
    d = unpack_d<Type>(v, block);
  }
  __m256 add_to(__m256 sum, const PackedAct& act, u32 s) const {
    const __m256i start = _mm256_madd_epi16(zeros, _mm256_set1_epi32(act.sums[s]));
    const i8* q = act.q + s * kStripElems;
    return add_scaled(sum, dot_scaled<kPairs<Type>>(start, codes, scales, q), d, act.scales[s]);
  }
};

template <class Type>
struct Weights<Type, Term::two_scales_minima> {
  static constexpr bool kSigned = false;
  __m256i codes[kStripGroups];
  __m256i scales[2];  // (sc, sc) in i16
  __m256i minima;     // (m0, m1) in i16
  __m256 d, dmin;

  static i32 sum_of(const i32* sums) { return two_sums(sums); }
  void read(const Half& v, const u8* block, const BlockHead<Type>& head, u32 s) {
    const __m128i sc0 = _mm_cvtepu8_epi16(v.bytes(head.scales[2 * s]));
    const __m128i sc1 = _mm_cvtepu8_epi16(v.bytes(head.scales[2 * s + 1]));
    scales[0] = zip(sc0, sc0);
    scales[1] = zip(sc1, sc1);
    minima = zip(_mm_cvtepu8_epi16(v.bytes(head.minima[2 * s])),
                 _mm_cvtepu8_epi16(v.bytes(head.minima[2 * s + 1])));
    d = unpack_d<Type>(v, block);
    dmin = v.f16(block + kTileOf<Type>.dmin);
  }
  __m256 add_to(__m256 sum, const PackedAct& act, u32 s) const {
    const __m256i dot =
        dot_scaled<kPairs<Type>>(_mm256_setzero_si256(), codes, scales, act.q + s * kStripElems);
    const __m256i low = _mm256_madd_epi16(minima, _mm256_set1_epi32(act.sums[s]));
    const __m256 below = _mm256_mul_ps(_mm256_cvtepi32_ps(low), dmin);
    const __m256 value = _mm256_fmsub_ps(_mm256_cvtepi32_ps(dot), d, below);
    return _mm256_fmadd_ps(value, _mm256_set1_ps(act.scales[s]), sum);
  }
};

template <class Type>
using WeightsOf = Weights<Type, Type::kTerm>;

// A block of activation rows times a group of tiles.
struct Job {
  const MatmulArgs& args;
  const u8* tiles;  // first tile of the group
  u64 tile_bytes;
  u32 n_tiles;
  u64 act_begin;
  u32 n_acts;
};

template <class Type>
void pack_acts(const Job& job, u32 k, u32 n_strips, PackedAct* packed) {
  const MatmulArgs& args = job.args;
  for (u32 a = 0; a < job.n_acts; ++a) {
    const u64 at = (job.act_begin + a) * args.k + k;
    // The next 256 k, whether they exist or not: a prefetch reads nothing.
    for (u32 i = 0; i < kSpanElems; i += 64) prefetch(args.q + at + kSpanElems + i);
    for (u32 s = 0; s < n_strips; ++s) {
      const __m256i q =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(args.q + at + s * kStripElems));
      _mm256_store_si256(reinterpret_cast<__m256i*>(packed[a].q + s * kStripElems), q);
      packed[a].sums[s] = WeightsOf<Type>::sum_of(args.sums + at / 16 + 2 * s);
      packed[a].scales[s] = args.scales[at / kStripElems + s];
    }
  }
}

// Bytes of a tile's 256 k.
template <class Type>
inline constexpr u64 kSpanBytes = u64{kTileOf<Type>.block_bytes} * (kSpanStrips / kStripsOf<Type>);

// sums [2 halves][n_acts]; `span` is the tile's bytes of these 256 k. The halves take turns strip
// by strip, as they share lines: half by half, memory rested during the second.
template <class Type, u32 kActs>
void add_span(const Job& job, const u8* span, u32 n_strips, const PackedAct* packed,
              __m256 (*sums)[kActs]) {
  const u32 n_acts = kActs == 1 ? 1 : job.n_acts;
  constexpr TileLayout at = kTileOf<Type>;
  constexpr u64 kStripBytes = kSpanBytes<Type> / kSpanStrips;
  BlockHead<Type> head;
  for (u32 s = 0; s < n_strips; ++s) {
    const u8* ahead = span + kSpanBytes<Type> + s * kStripBytes;
    for (u64 i = 0; i < kStripBytes; i += 64) prefetch(ahead + i);
    const u8* block = span + s / kStripsOf<Type> * at.block_bytes;
    const u32 in_block = s % kStripsOf<Type>;
    if (in_block == 0) head.read(block);
    for (u32 half = 0; half < 2; ++half) {
      const Half v{half};
      WeightsOf<Type> weights;
      const u8* strip = block + at.strips + in_block * at.strip_bytes;
      unpack<Type, WeightsOf<Type>::kSigned>(v, strip, weights.codes);
      weights.read(v, block, head, in_block);
#pragma GCC unroll 4
      for (u32 a = 0; a < n_acts; ++a) {
        sums[half][a] = weights.add_to(sums[half][a], packed[a], s);
      }
    }
  }
}

// One half tile's sums, [n_acts].
void store_half(const Job& job, u64 row, const __m256* sums) {
  const MatmulArgs& args = job.args;
  if (row >= args.n_out) return;
  const u64 n_rows = args.n_out - row < kHalfRows ? args.n_out - row : kHalfRows;
  for (u32 a = 0; a < job.n_acts; ++a) {
    f32 values[kHalfRows];
    _mm256_storeu_ps(values, sums[a]);
    f32* out = args.out + (job.act_begin + a) * args.out_stride + row;
    for (u64 r = 0; r < n_rows; ++r) {
      out[r] = args.bias != nullptr ? values[r] + args.bias[row + r] : values[r];
    }
  }
}

// kActs: 1, of one row alone, whose sums and codes then stay in registers; or kMatmulActs.
template <class Type, u32 kActs>
void run_job(const Job& job, u64 first_tile) {
  PackedAct packed[kActs];
  __m256 sums[kMatmulTiles * 2][kActs];
  for (u32 i = 0; i < job.n_tiles * 2; ++i) {
    for (u32 a = 0; a < job.n_acts; ++a) sums[i][a] = _mm256_setzero_ps();
  }
  const u8* span = job.tiles;
  for (u32 k = 0; k < job.args.k; k += kSpanElems, span += kSpanBytes<Type>) {
    const u32 k_left = job.args.k - k;
    const u32 n_strips = (k_left < kSpanElems ? k_left : kSpanElems) / kStripElems;
    pack_acts<Type>(job, k, n_strips, packed);
    for (u32 i = 0; i < job.n_tiles; ++i) {
      add_span<Type, kActs>(job, span + i * job.tile_bytes, n_strips, packed, sums + 2 * i);
    }
  }
  for (u32 i = 0; i < job.n_tiles * 2; ++i) {
    store_half(job, first_tile * kTileRows + i * kHalfRows, sums[i]);
  }
}

template <class Type>
void matmul_of(const MatmulArgs& args) {
  const u64 tile_bytes = args.k / Type::kTraits.block_elems * kTileOf<Type>.block_bytes;
  // One row is bound by memory, which on Zen 3 two streams read faster than one or four.
  const u64 group = args.n_acts == 1 ? 2 : kMatmulTiles;
  for (u64 tile = args.tile_begin; tile < args.tile_end; tile += group) {
    const u64 tiles_left = args.tile_end - tile;
    for (u64 act = 0; act < args.n_acts; act += kMatmulActs) {
      const u64 acts_left = args.n_acts - act;
      const Job job{.args = args,
                    .tiles = static_cast<const u8*>(args.weights) + tile * tile_bytes,
                    .tile_bytes = tile_bytes,
                    .n_tiles = static_cast<u32>(tiles_left < group ? tiles_left : group),
                    .act_begin = act,
                    .n_acts = static_cast<u32>(acts_left < kMatmulActs ? acts_left : kMatmulActs)};
      job.n_acts == 1 ? run_job<Type, 1>(job, tile) : run_job<Type, kMatmulActs>(job, tile);
    }
  }
}

}  // namespace

void matmul_avx2(const MatmulArgs& args) {
  const bool is_quantized =
      QuantTypes::visit(args.type, [&]<class Type>(Type) { matmul_of<Type>(args); });
  if (!is_quantized) matmul_float_avx2(args);
}

}  // namespace tarn::kernels
