// Quantised products with VNNI: lane r of a register is row r of a tile, vpdpbusd multiplies the
// unsigned codes of 4 k with the signed activations of 4 k (one broadcast) and adds into 16 i32
// sums. Codes stay unsigned; the "- zero" of a type is paid for by starting the sum at -zero *
// sum(q).
//
// Order of loops: a group of tiles, a block of activation rows, 256 k at a time (activations packed
// into L1 once for the whole group), a pair of tiles, a strip of 32 k (its weights unpacked into 16
// registers), and innermost the activation rows. So weights are unpacked once per block of rows,
// and the f32 sums, one vector per row and tile, live in L1. The same loops serve 1 row: then they
// are bound by the stream of weights.
//
// A strip of 16 rows costs 8 vpdpbusd and 2 to 4 multiplications on the two ports that have either,
// so the types cannot all reach the dot product's peak: q4_k 8/11 of it, q8_0 8/10, q6_k 8/12.
#include <immintrin.h>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/quant/vector_avx512.h"

namespace tarn::kernels {
namespace {

constexpr u32 kSpanElems = 256;  // k at a time: a block of the k-quants, or 8 blocks of 32
constexpr u32 kSpanStrips = kSpanElems / kStripElems;

// 256 k of one activation row.
struct alignas(64) PackedAct {
  i8 q[kSpanElems];
  i32 sums[kSpanElems / 16];  // as the type wants them: pack_acts()
  f32 scales[kSpanStrips];
};

void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
__m512i broadcast(const i8* at) {
  i32 four;
  __builtin_memcpy(&four, at, sizeof four);
  return _mm512_set1_epi32(four);
}

// The head of a block of 16 rows, read once for its strips.
template <class Type>
struct BlockHead {
  void read(const u8*) {}
};
template <class Type>
requires(kStripsOf<Type> > 1 && HasMinimum<Type>) struct BlockHead<Type> : Head<Type> {
  __m512 d, dmin;
  void read(const u8* block) {
    Head<Type>::template read<Whole>(block);
    d = unpack_d<Type>(Whole(), block);
    dmin = Whole::f16(block + kTileOf<Type>.dmin);
  }
};
template <class Type>
requires(kStripsOf<Type> > 1 && !HasMinimum<Type> && ReadsScales<Type>) struct BlockHead<Type>
    : Head<Type> {
  __m512 d;
  void read(const u8* block) {
    Head<Type>::template read<Whole>(block);
    d = unpack_d<Type>(Whole(), block);
  }
};
template <class Type>
requires(kStripsOf<Type> > 1 && !HasMinimum<Type> && !ReadsScales<Type>) struct BlockHead<Type> {
  __m512 d;
  void read(const u8* block) { d = unpack_d<Type>(Whole(), block); }
};

// Dot products over the strip's first and its second 16 k, added to what first and second hold. Two
// chains per tile, even where one sum is wanted: one chain of 8 would keep the ports waiting.
template <u32 kTiles, class Weights>
void add_dots(const Weights (&w)[kTiles], const i8* q, __m512i (&first)[kTiles],
              __m512i (&second)[kTiles]) {
  for (u32 g = 0; g < kStripGroups / 2; ++g) {
    const __m512i x = broadcast(q + g * 4), y = broadcast(q + 16 + g * 4);
    for (u32 t = 0; t < kTiles; ++t) {
      first[t] = _mm512_dpbusd_epi32(first[t], w[t].codes[g], x);
      second[t] = _mm512_dpbusd_epi32(second[t], w[t].codes[4 + g], y);
    }
  }
}

// A strip's weights of a tile, for each term: read() takes them from the tile, add_terms() adds the
// strip's terms for one activation row and kTiles tiles. The tiles share every broadcast of
// activations, or loads would be the limit.
template <class Type, Term kTerm>
struct Weights;

// sum + f32(i) * (d_w * d_x)
template <class Type>
struct Weights<Type, Term::scaled> {
  __m512i codes[kStripGroups];
  __m512 d;

  void read(const u8* block, const BlockHead<Type>& head, u32 s) {
    if constexpr (HasScales<Type>) {
      d = _mm512_mul_ps(head.d, _mm512_cvtepi32_ps(Whole::i8_as_i32(head.scales[s])));
    } else {
      d = unpack_d<Type>(Whole(), block);
    }
  }
  template <u32 kTiles>
  static void add_terms(const Weights (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
    __m512i first[kTiles], second[kTiles];
    for (u32 t = 0; t < kTiles; ++t) {
      first[t] = _mm512_set1_epi32(act.sums[2 * s]);
      second[t] = _mm512_setzero_si512();
    }
    add_dots(w, act.q + s * kStripElems, first, second);
    const __m512 d_x = _mm512_set1_ps(act.scales[s]);
    for (u32 t = 0; t < kTiles; ++t) {
      const __m512i dot = _mm512_add_epi32(first[t], second[t]);
      const __m512 scale = _mm512_mul_ps(w[t].d, d_x);
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[t]);
    }
  }
};

// sum + (f32(i) * (d*sc) - f32(s) * (dmin*m)) * d_x
template <class Type>
struct Weights<Type, Term::with_minimum> {
  __m512i codes[kStripGroups];
  __m512 scale, low;

  void read(const u8* block, const BlockHead<Type>& head, u32 s) {
    if constexpr (HasScales<Type>) {
      scale = _mm512_mul_ps(head.d, _mm512_cvtepi32_ps(Whole::u8_as_i32(head.scales[s])));
      low = _mm512_mul_ps(head.dmin, _mm512_cvtepi32_ps(Whole::u8_as_i32(head.minima[s])));
    } else {
      scale = unpack_d<Type>(Whole(), block);
      low = Whole::f16(block + kTileOf<Type>.dmin);
      if constexpr (AddsMinimum<Type>) low = _mm512_xor_ps(low, _mm512_set1_ps(-0.0f));
    }
  }
  template <u32 kTiles>
  static void add_terms(const Weights (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
    __m512i first[kTiles], second[kTiles];
    for (u32 t = 0; t < kTiles; ++t) first[t] = second[t] = _mm512_setzero_si512();
    add_dots(w, act.q + s * kStripElems, first, second);
    // Here the packed sums are f32.
    const __m512 sum_x = _mm512_castsi512_ps(_mm512_set1_epi32(act.sums[2 * s]));
    const __m512 d_x = _mm512_set1_ps(act.scales[s]);
    for (u32 t = 0; t < kTiles; ++t) {
      const __m512i sum = _mm512_add_epi32(first[t], second[t]);
      const __m512 below = _mm512_mul_ps(sum_x, w[t].low);
      const __m512 term = _mm512_fmsub_ps(_mm512_cvtepi32_ps(sum), w[t].scale, below);
      sums[t] = _mm512_fmadd_ps(term, d_x, sums[t]);
    }
  }
};

// sc0 * first + sc1 * second. Where a sum over 16 fits in i16, vpdpwssd does it, with scales whose
// upper halves are 0.
template <class Type>
inline constexpr bool kShortSums = 16 * 127 *
                                       (Type::kMost > -Type::kLeast ? Type::kMost : -Type::kLeast) <
                                   32768;
template <class Type>
__m512i scale_dots(__m512i first, __m512i second, const __m512i (&scales)[2]) {
  if constexpr (kShortSums<Type>) {
    const __m512i dot = _mm512_dpwssd_epi32(_mm512_setzero_si512(), first, scales[0]);
    return _mm512_dpwssd_epi32(dot, second, scales[1]);
  } else {
    return _mm512_add_epi32(_mm512_mullo_epi32(first, scales[0]),
                            _mm512_mullo_epi32(second, scales[1]));
  }
}

// sum + f32(sc0 * i0 + sc1 * i1) * (d * d_x)
template <class Type>
struct Weights<Type, Term::two_scales> {
  __m512i codes[kStripGroups];
  __m512i scales[2];
  __m512 d;

  void read(const u8* block, const BlockHead<Type>& head, u32 s) {
    const u8* bytes = block + kTileOf<Type>.scales + s * 2 * kTileRows;
    if constexpr (ReadsScales<Type>) bytes = head.scales[2 * s];
    for (u32 i = 0; i < 2; ++i) {
      scales[i] = Whole::i8_as_i32(bytes + i * kTileRows);
      if constexpr (kShortSums<Type>) {
        scales[i] = _mm512_and_si512(scales[i], _mm512_set1_epi32(0xFFFF));
      }
    }
    d = head.d;
  }
  template <u32 kTiles>
  static void add_terms(const Weights (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
    __m512i first[kTiles], second[kTiles];
    for (u32 t = 0; t < kTiles; ++t) {
      first[t] = _mm512_set1_epi32(act.sums[2 * s]);
      second[t] = _mm512_set1_epi32(act.sums[2 * s + 1]);
    }
    add_dots(w, act.q + s * kStripElems, first, second);
    const __m512 d_x = _mm512_set1_ps(act.scales[s]);
    for (u32 t = 0; t < kTiles; ++t) {
      const __m512i dot = scale_dots<Type>(first[t], second[t], w[t].scales);
      const __m512 scale = _mm512_mul_ps(w[t].d, d_x);
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[t]);
    }
  }
};

// sum + (f32(sc0 * i0 + sc1 * i1) * d - f32(m0 * s0 + m1 * s1) * dmin) * d_x
template <class Type>
struct Weights<Type, Term::two_scales_minima> {
  static_assert(kShortSums<Type>);
  __m512i codes[kStripGroups];
  __m512i scales[2];
  __m512i minima;  // (m0, m1) in i16
  __m512 d, dmin;

  void read(const u8*, const BlockHead<Type>& head, u32 s) {
    for (u32 i = 0; i < 2; ++i) scales[i] = Whole::u8_as_i32(head.scales[2 * s + i]);
    minima = _mm512_or_si512(Whole::u8_as_i32(head.minima[2 * s]),
                             _mm512_slli_epi32(Whole::u8_as_i32(head.minima[2 * s + 1]), 16));
    d = head.d;
    dmin = head.dmin;
  }
  template <u32 kTiles>
  static void add_terms(const Weights (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
    __m512i first[kTiles], second[kTiles];
    for (u32 t = 0; t < kTiles; ++t) first[t] = second[t] = _mm512_setzero_si512();
    add_dots(w, act.q + s * kStripElems, first, second);
    // Here the packed sums are both of the strip, in i16.
    const __m512i two = _mm512_set1_epi32(act.sums[2 * s]);
    const __m512 d_x = _mm512_set1_ps(act.scales[s]);
    for (u32 t = 0; t < kTiles; ++t) {
      const __m512i dot = scale_dots<Type>(first[t], second[t], w[t].scales);
      const __m512i low = _mm512_dpwssd_epi32(_mm512_setzero_si512(), two, w[t].minima);
      const __m512 below = _mm512_mul_ps(_mm512_cvtepi32_ps(low), w[t].dmin);
      const __m512 term = _mm512_fmsub_ps(_mm512_cvtepi32_ps(dot), w[t].d, below);
      sums[t] = _mm512_fmadd_ps(term, d_x, sums[t]);
    }
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

// Sums over 16 become what a strip's dot product starts from, kLeast times them, or kLeast times
// the sum over 32; or, with minima, f32(sum over 32), or both sums in i16. What belongs to 32 is at
// the even places.
template <class Type>
__m512i sums_for(__m512i sums) {
  if constexpr (Type::kTerm == Term::two_scales) {
    return _mm512_mullo_epi32(sums, _mm512_set1_epi32(Type::kLeast));
  } else if constexpr (Type::kTerm == Term::two_scales_minima) {
    return _mm512_or_si512(
        _mm512_and_si512(sums, _mm512_set1_epi32(0xFFFF)),
        _mm512_and_si512(_mm512_srli_epi64(sums, 16), _mm512_set1_epi32(-65536)));
  } else {
    const __m512i pairs = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
    if constexpr (Type::kTerm == Term::with_minimum) {
      return _mm512_castps_si512(_mm512_cvtepi32_ps(pairs));
    }
    return _mm512_mullo_epi32(pairs, _mm512_set1_epi32(Type::kLeast));
  }
}

template <class Type>
void pack_acts(const Job& job, u32 k, u32 n_strips, PackedAct* packed) {
  const MatmulArgs& args = job.args;
  const __mmask16 sums_mask = static_cast<__mmask16>((1u << (2 * n_strips)) - 1);
  const __mmask8 scales_mask = static_cast<__mmask8>((1u << n_strips) - 1);
  for (u32 a = 0; a < job.n_acts; ++a) {
    const u64 at = (job.act_begin + a) * args.k + k;
    // The next 256 k, whether they exist or not: a prefetch reads nothing.
    for (u32 i = 0; i < kSpanElems; i += 64) prefetch(args.q + at + kSpanElems + i);
    prefetch(args.sums + (at + kSpanElems) / 16);
    prefetch(args.scales + (at + kSpanElems) / 32);
    for (u32 s = 0; s < n_strips; ++s) {
      const u32 i = s * kStripElems;
      _mm256_store_si256(reinterpret_cast<__m256i*>(packed[a].q + i),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(args.q + at + i)));
    }
    const __m512i sums = _mm512_maskz_loadu_epi32(sums_mask, args.sums + at / 16);
    _mm512_store_si512(packed[a].sums, sums_for<Type>(sums));
    _mm256_store_ps(packed[a].scales, _mm256_maskz_loadu_ps(scales_mask, args.scales + at / 32));
  }
}

// sums [n_acts][kTiles]; `span` is the first tile's bytes of these 256 k.
template <class Type, u32 kTiles, u32 kActs>
void add_span(const Job& job, const u8* span, u32 n_strips, const PackedAct* packed, __m512* sums) {
  const u32 n_acts = kActs == 1 ? 1 : job.n_acts;
  constexpr TileLayout kAt = kTileOf<Type>;
  constexpr u64 kSpanBytes = kAt.block_bytes * (kSpanStrips / kStripsOf<Type>);
  BlockHead<Type> heads[kTiles];
  WeightsOf<Type> weights[kTiles];
  for (u32 s = 0; s < n_strips; ++s) {
    const u8* block = span + s / kStripsOf<Type> * kAt.block_bytes;
    const u32 in_block = s % kStripsOf<Type>;
#pragma GCC unroll 2
    for (u32 t = 0; t < kTiles; ++t) {
      const u8* at = block + t * job.tile_bytes;
      if (in_block == 0) heads[t].read(at);
      unpack<Type, false>(Whole(), at + kAt.strips + in_block * kAt.strip_bytes, weights[t].codes);
      weights[t].read(at, heads[t], in_block);
      const u8* ahead = span + t * job.tile_bytes + kSpanBytes + s * (kSpanBytes / kSpanStrips);
      for (u32 i = 0; i < kSpanBytes / kSpanStrips; i += 64) prefetch(ahead + i);
    }
    for (u32 a = 0; a < n_acts; ++a) {
      WeightsOf<Type>::template add_terms<kTiles>(weights, packed[a], s, sums + a * kTiles);
    }
  }
}

// One tile's sums, `stride` vectors apart from row to row.
void store_tile(const Job& job, u64 tile, const __m512* sums, u32 stride) {
  const MatmulArgs& args = job.args;
  const u64 row = tile * kTileRows;
  const u64 n_rows = args.n_out - row < kTileRows ? args.n_out - row : kTileRows;
  const __mmask16 mask = static_cast<__mmask16>((1u << n_rows) - 1);
  for (u32 a = 0; a < job.n_acts; ++a) {
    __m512 sum = sums[a * stride];
    if (args.bias != nullptr) {
      sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, args.bias + row));
    }
    _mm512_mask_storeu_ps(args.out + (job.act_begin + a) * args.out_stride + row, mask, sum);
  }
}

// kActs: 1, of one row alone, whose sums and codes then stay in registers; or kMatmulActs.
template <class Type, u32 kActs>
void run_job(const Job& job, u64 first_tile) {
  constexpr u64 kSpanBytes = kTileOf<Type>.block_bytes * (kSpanStrips / kStripsOf<Type>);
  PackedAct packed[kActs];
  __m512 sums[kMatmulTiles / 2][kActs * 2];
  for (u32 p = 0; p < (job.n_tiles + 1) / 2; ++p) {
    for (u32 i = 0; i < job.n_acts * 2; ++i) sums[p][i] = _mm512_setzero_ps();
  }
  const u8* span = job.tiles;
  for (u32 k = 0; k < job.args.k; k += kSpanElems, span += kSpanBytes) {
    const u32 k_left = job.args.k - k;
    const u32 n_strips = (k_left < kSpanElems ? k_left : kSpanElems) / kStripElems;
    pack_acts<Type>(job, k, n_strips, packed);
    u32 t = 0;
    for (; t + 2 <= job.n_tiles; t += 2) {
      add_span<Type, 2, kActs>(job, span + t * job.tile_bytes, n_strips, packed, sums[t / 2]);
    }
    if (t < job.n_tiles) {
      add_span<Type, 1, kActs>(job, span + t * job.tile_bytes, n_strips, packed, sums[t / 2]);
    }
  }
  for (u32 t = 0; t < job.n_tiles; ++t) {
    const u32 stride = t == (job.n_tiles & ~1u) ? 1 : 2;  // the odd last tile has its own rows
    store_tile(job, first_tile + t, sums[t / 2] + t % 2, stride);
  }
}

template <class Type>
void matmul_of(const MatmulArgs& args) {
  const u64 tile_bytes = args.k / Type::kTraits.block_elems * kTileOf<Type>.block_bytes;
  // One row is bound by memory, which two streams read fastest (matmul_avx2.cpp).
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

void matmul_avx512(const MatmulArgs& args) {
  const bool is_quantized =
      QuantTypes::visit(args.type, [&]<class Type>(Type) { matmul_of<Type>(args); });
  if (!is_quantized) matmul_float_avx512(args);
}

}  // namespace tarn::kernels
