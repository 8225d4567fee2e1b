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
#include "kernels/quant/strip.h"

namespace tarn::kernels {
namespace {

constexpr u32 kSpanElems = 256;  // k at a time: a block of the k-quants, or 8 blocks of 32
constexpr u32 kSpanStrips = kSpanElems / kStripElems;
constexpr u32 kGroups = kStripElems / 4;  // registers of codes per strip and tile

// 256 k of one activation row.
struct alignas(64) PackedAct {
  i8 q[kSpanElems];
  i32 sums[kSpanElems / 16];  // as the type wants them: pack_acts()
  f32 scales[kSpanStrips];
};

__m512 load_f16(const u8* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
__m512i load_bytes(const u8* at) { return _mm512_loadu_si512(at); }
void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
__m512i broadcast(const i8* at) {
  i32 four;
  __builtin_memcpy(&four, at, sizeof four);
  return _mm512_set1_epi32(four);
}
__m512i load_u8_as_i32(const u8* at) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
__m512i load_i8_as_i32(const u8* at) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

// codes[i] the low, codes[4 + i] the high nibbles of the strip's i-th 64 bytes.
void load_nibbles(const u8* strip, __m512i* codes) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (u32 i = 0; i < 4; ++i) {
    const __m512i bytes = load_bytes(strip + i * 64);
    codes[i] = _mm512_and_si512(bytes, mask);
    codes[4 + i] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
  }
}

constexpr i32 kOrAnd = 0xF8;  // ternary logic: a | (b & c)

// codes |= (high shifted left by kLeft, right if negative) & mask; bits that a 16-bit shift carries
// from one byte into the next are outside of every mask used.
template <i32 kLeft>
void or_bits(__m512i& codes, __m512i high, __m512i mask) {
  __m512i moved = high;
  if constexpr (kLeft > 0) moved = _mm512_slli_epi16(high, kLeft);
  if constexpr (kLeft < 0) moved = _mm512_srli_epi16(high, -kLeft);
  codes = _mm512_ternarylogic_epi32(codes, moved, mask, kOrAnd);
}

// The codes of q5_0 and q5_k: bit g of a high byte is bit 4 of group g's code.
void load_5_bits(const u8* strip, u32 high_at, __m512i* codes) {
  load_nibbles(strip, codes);
  const __m512i high = load_bytes(strip + high_at);
  const __m512i bit4 = _mm512_set1_epi8(16);
  or_bits<4>(codes[0], high, bit4);
  or_bits<3>(codes[1], high, bit4);
  or_bits<2>(codes[2], high, bit4);
  or_bits<1>(codes[3], high, bit4);
  or_bits<0>(codes[4], high, bit4);
  or_bits<-1>(codes[5], high, bit4);
  or_bits<-2>(codes[6], high, bit4);
  or_bits<-3>(codes[7], high, bit4);
}

// What each type knows: how a block's head and a strip's weights are read, and how a strip's terms
// are added for one activation row and kTiles tiles. The tiles share every broadcast of
// activations, or loads would be the limit.

// Dot products over the strip's first and its second 16 k, added to what first and second hold. Two
// chains per tile, even where one sum is wanted: one chain of 8 would keep the ports waiting.
template <u32 kTiles, class Weights>
void add_dots(const Weights (&w)[kTiles], const i8* q, __m512i (&first)[kTiles],
              __m512i (&second)[kTiles]) {
  for (u32 g = 0; g < kGroups / 2; ++g) {
    const __m512i x = broadcast(q + g * 4), y = broadcast(q + 16 + g * 4);
    for (u32 t = 0; t < kTiles; ++t) {
      first[t] = _mm512_dpbusd_epi32(first[t], w[t].codes[g], x);
      second[t] = _mm512_dpbusd_epi32(second[t], w[t].codes[4 + g], y);
    }
  }
}

// q8_0, q4_0 and q5_0: sum + f32(i) * (d_w * d_x)
struct OneScale {
  __m512i codes[kGroups];
  __m512 d;

  template <u32 kTiles>
  static void add_terms(const OneScale (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
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

// q4_k and q5_k: sum + (f32(i) * (d*sc) - f32(s) * (dmin*m)) * d_x
struct ScaleAndMin {
  __m512i codes[kGroups];
  __m512 scale, low;

  template <u32 kTiles>
  static void add_terms(const ScaleAndMin (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
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

// q6_k: sum + f32(sc0 * i0 + sc1 * i1) * (d * d_x)
struct TwoScales {
  __m512i codes[kGroups];
  __m512i scales[2];
  __m512 d;

  template <u32 kTiles>
  static void add_terms(const TwoScales (&w)[kTiles], const PackedAct& act, u32 s, __m512* sums) {
    __m512i first[kTiles], second[kTiles];
    for (u32 t = 0; t < kTiles; ++t) {
      first[t] = _mm512_set1_epi32(act.sums[2 * s]);
      second[t] = _mm512_set1_epi32(act.sums[2 * s + 1]);
    }
    add_dots(w, act.q + s * kStripElems, first, second);
    const __m512 d_x = _mm512_set1_ps(act.scales[s]);
    for (u32 t = 0; t < kTiles; ++t) {
      const __m512i dot = _mm512_add_epi32(_mm512_mullo_epi32(first[t], w[t].scales[0]),
                                           _mm512_mullo_epi32(second[t], w[t].scales[1]));
      const __m512 scale = _mm512_mul_ps(w[t].d, d_x);
      sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[t]);
    }
  }
};

struct Q8_0 {
  using Weights = OneScale;
  static constexpr TileBlock kAt = kTileQ8_0;
  static constexpr u32 kBlockStrips = 1;
  static constexpr i32 kZero = 128;
  struct Head {};
  static void read_head(const u8*, Head&) {}
  static void read_strip(const u8* block, const Head&, u32, Weights& weights) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    for (u32 g = 0; g < kGroups; ++g) {
      weights.codes[g] = _mm512_xor_si512(load_bytes(block + kTileQ8_0.strips + g * 64), flip);
    }
    weights.d = load_f16(block);
  }
};

struct Q4_0 {
  using Weights = OneScale;
  static constexpr TileBlock kAt = kTileQ4_0;
  static constexpr u32 kBlockStrips = 1;
  static constexpr i32 kZero = 8;
  struct Head {};
  static void read_head(const u8*, Head&) {}
  static void read_strip(const u8* block, const Head&, u32, Weights& weights) {
    load_nibbles(block + kTileQ4_0.strips, weights.codes);
    weights.d = load_f16(block);
  }
};

struct Q5_0 {
  using Weights = OneScale;
  static constexpr TileBlock kAt = kTileQ5_0;
  static constexpr u32 kBlockStrips = 1;
  static constexpr i32 kZero = 16;
  struct Head {};
  static void read_head(const u8*, Head&) {}
  static void read_strip(const u8* block, const Head&, u32, Weights& weights) {
    load_5_bits(block + kTileQ5_0.strips, kTileQ5_0.high, weights.codes);
    weights.d = load_f16(block);
  }
};

// The head of q4_k and q5_k with its 6-bit fields apart: one byte per strip and row.
struct ScaleMinHead {
  alignas(64) u8 scales[kSpanStrips][kTileRows];
  alignas(64) u8 minima[kSpanStrips][kTileRows];
  __m512 d, dmin;

  void read(const u8* block) {
    const __m512i first = load_bytes(block + kTileQ4K.scales);
    const __m512i second = load_bytes(block + kTileQ4K.scales + 64);
    const __m512i third = load_bytes(block + kTileQ4K.scales + 128);
    const __m512i low6 = _mm512_set1_epi8(63), low4 = _mm512_set1_epi8(15);
    const __m512i bits45 = _mm512_set1_epi8(48);
    _mm512_store_si512(scales, _mm512_and_si512(first, low6));
    _mm512_store_si512(minima, _mm512_and_si512(second, low6));
    _mm512_store_si512(scales + 4,
                       _mm512_ternarylogic_epi32(_mm512_and_si512(third, low4),
                                                 _mm512_srli_epi16(first, 2), bits45, kOrAnd));
    const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(third, 4), low4);
    _mm512_store_si512(
        minima + 4, _mm512_ternarylogic_epi32(upper, _mm512_srli_epi16(second, 2), bits45, kOrAnd));
    d = load_f16(block);
    dmin = load_f16(block + kTileQ4K.dmin);
  }
  void read_strip(u32 s, ScaleAndMin& weights) const {
    weights.scale = _mm512_mul_ps(d, _mm512_cvtepi32_ps(load_u8_as_i32(scales[s])));
    weights.low = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(load_u8_as_i32(minima[s])));
  }
};

struct Q4K {
  using Weights = ScaleAndMin;
  using Head = ScaleMinHead;
  static constexpr TileBlock kAt = kTileQ4K;
  static constexpr u32 kBlockStrips = 8;
  static constexpr i32 kZero = 0;
  static void read_head(const u8* block, Head& head) { head.read(block); }
  static void read_strip(const u8* block, const Head& head, u32 s, Weights& weights) {
    load_nibbles(block + kTileQ4K.strips + s * kTileQ4K.strip_bytes, weights.codes);
    head.read_strip(s, weights);
  }
};

struct Q5K {
  using Weights = ScaleAndMin;
  using Head = ScaleMinHead;
  static constexpr TileBlock kAt = kTileQ5K;
  static constexpr u32 kBlockStrips = 8;
  static constexpr i32 kZero = 0;
  static void read_head(const u8* block, Head& head) { head.read(block); }
  static void read_strip(const u8* block, const Head& head, u32 s, Weights& weights) {
    const u8* strip = block + kTileQ5K.strips + s * kTileQ5K.strip_bytes;
    load_5_bits(strip, kTileQ5K.high, weights.codes);
    head.read_strip(s, weights);
  }
};

struct Q6K {
  using Weights = TwoScales;
  struct Head {
    __m512 d;
  };
  static constexpr TileBlock kAt = kTileQ6K;
  static constexpr u32 kBlockStrips = 8;
  static constexpr i32 kZero = 32;
  static void read_head(const u8* block, Head& head) { head.d = load_f16(block); }
  static void read_strip(const u8* block, const Head& head, u32 s, Weights& weights) {
    const u8* strip = block + kTileQ6K.strips + s * kTileQ6K.strip_bytes;
    load_nibbles(strip, weights.codes);
    const __m512i bits45 = _mm512_set1_epi8(48);
    for (u32 v = 0; v < 2; ++v) {  // bits 2g and 2g + 1 of a byte belong to group 4v + g
      const __m512i high = load_bytes(strip + kTileQ6K.high + v * 64);
      or_bits<4>(weights.codes[v * 4], high, bits45);
      or_bits<2>(weights.codes[v * 4 + 1], high, bits45);
      or_bits<0>(weights.codes[v * 4 + 2], high, bits45);
      or_bits<-2>(weights.codes[v * 4 + 3], high, bits45);
    }
    const u8* scales = block + kTileQ6K.scales + s * 2 * kTileRows;
    weights.scales[0] = load_i8_as_i32(scales);
    weights.scales[1] = load_i8_as_i32(scales + kTileRows);
    weights.d = head.d;
  }
};

// A block of activation rows times a group of tiles.
struct Job {
  const MatmulArgs& args;
  const u8* tiles;  // first tile of the group
  u64 tile_bytes;
  u32 n_tiles;
  u64 act_begin;
  u32 n_acts;
};

// Sums over 16 become what a strip's dot product starts from: -32 * sum for q6_k, -zero * (sum over
// 32) for q8_0, q4_0 and q5_0; and f32(sum over 32) for q4_k and q5_k. Sums over 32 are at the even
// places.
template <class Type>
__m512i sums_for(__m512i sums) {
  if constexpr (Type::kZero == 32) return _mm512_mullo_epi32(sums, _mm512_set1_epi32(-32));
  const __m512i pairs = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
  if constexpr (Type::kZero == 0) return _mm512_castps_si512(_mm512_cvtepi32_ps(pairs));
  return _mm512_mullo_epi32(pairs, _mm512_set1_epi32(-Type::kZero));
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
template <class Type, u32 kTiles>
void add_span(const Job& job, const u8* span, u32 n_strips, const PackedAct* packed, __m512* sums) {
  constexpr u64 kBlockBytes = Type::kAt.strips + Type::kBlockStrips * Type::kAt.strip_bytes;
  constexpr u64 kSpanBytes = kBlockBytes * (kSpanStrips / Type::kBlockStrips);
  typename Type::Head heads[kTiles];
  typename Type::Weights weights[kTiles];
  for (u32 s = 0; s < n_strips; ++s) {
    const u8* block = span + s / Type::kBlockStrips * kBlockBytes;
    for (u32 t = 0; t < kTiles; ++t) {
      const u8* at = block + t * job.tile_bytes;
      if (s % Type::kBlockStrips == 0) Type::read_head(at, heads[t]);
      Type::read_strip(at, heads[t], s % Type::kBlockStrips, weights[t]);
      const u8* ahead = span + t * job.tile_bytes + kSpanBytes + s * (kSpanBytes / kSpanStrips);
      for (u32 i = 0; i < kSpanBytes / kSpanStrips; i += 64) prefetch(ahead + i);
    }
    for (u32 a = 0; a < job.n_acts; ++a) {
      Type::Weights::template add_terms<kTiles>(weights, packed[a], s, sums + a * kTiles);
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

template <class Type>
void run_job(const Job& job, u64 first_tile) {
  constexpr u64 kBlockBytes = Type::kAt.strips + Type::kBlockStrips * Type::kAt.strip_bytes;
  constexpr u64 kSpanBytes = kBlockBytes * (kSpanStrips / Type::kBlockStrips);
  PackedAct packed[kMatmulActs];
  __m512 sums[kMatmulTiles / 2][kMatmulActs * 2];
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
      add_span<Type, 2>(job, span + t * job.tile_bytes, n_strips, packed, sums[t / 2]);
    }
    if (t < job.n_tiles) {
      add_span<Type, 1>(job, span + t * job.tile_bytes, n_strips, packed, sums[t / 2]);
    }
  }
  for (u32 t = 0; t < job.n_tiles; ++t) {
    const u32 stride = t == (job.n_tiles & ~1u) ? 1 : 2;  // the odd last tile has its own rows
    store_tile(job, first_tile + t, sums[t / 2] + t % 2, stride);
  }
}

template <class Type>
void matmul_of(const MatmulArgs& args) {
  const u64 tile_bytes = args.k / (Type::kBlockStrips * kStripElems) *
                         (Type::kAt.strips + Type::kBlockStrips * Type::kAt.strip_bytes);
  for (u64 tile = args.tile_begin; tile < args.tile_end; tile += kMatmulTiles) {
    const u64 tiles_left = args.tile_end - tile;
    for (u64 act = 0; act < args.n_acts; act += kMatmulActs) {
      const u64 acts_left = args.n_acts - act;
      run_job<Type>(
          {.args = args,
           .tiles = static_cast<const u8*>(args.weights) + tile * tile_bytes,
           .tile_bytes = tile_bytes,
           .n_tiles = static_cast<u32>(tiles_left < kMatmulTiles ? tiles_left : kMatmulTiles),
           .act_begin = act,
           .n_acts = static_cast<u32>(acts_left < kMatmulActs ? acts_left : kMatmulActs)},
          tile);
    }
  }
}

}  // namespace

void matmul_avx512(const MatmulArgs& args) {
  switch (args.type) {
    case TensorType::q8_0:
      return matmul_of<Q8_0>(args);
    case TensorType::q4_0:
      return matmul_of<Q4_0>(args);
    case TensorType::q5_0:
      return matmul_of<Q5_0>(args);
    case TensorType::q4_k:
      return matmul_of<Q4K>(args);
    case TensorType::q5_k:
      return matmul_of<Q5K>(args);
    case TensorType::q6_k:
      return matmul_of<Q6K>(args);
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
      return matmul_float_avx512(args);
  }
}

}  // namespace tarn::kernels
