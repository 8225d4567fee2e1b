// Quantised products without VNNI. The loops are those of matmul_avx512.cpp, with half a tile (8
// rows, one register of i32) at a time: activations packed into L1, weights unpacked once per block
// of activation rows. vpmaddubsw adds pairs of u8 * i8 products in i16 and would saturate, so each
// type adds up in i16 only as far as its codes allow (|q| <= 127):
//
//   q4_0, q4_k   8 pairs of codes <= 15:   8 * 2 * 15 * 127 = 30480
//   q5_0, q5_k   4 pairs of codes <= 31:   4 * 2 * 31 * 127 = 31496
//   q6_k         2 pairs of codes <= 63:   2 * 2 * 63 * 127 = 32004
//   q8_0         1 pair of |w| <= 128:         2 * 128 * 127 = 32512, the sign moved to q
#include <immintrin.h>

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/quant/strip.h"

namespace tarn::kernels {
namespace {

constexpr u32 kSpanElems = 256;  // k at a time: a block of the k-quants, or 8 blocks of 32
constexpr u32 kSpanStrips = kSpanElems / kStripElems;
constexpr u32 kGroups = kStripElems / 4;  // registers of codes per strip and half tile
constexpr u32 kHalfRows = 8;

// 256 k of one activation row.
struct alignas(32) PackedAct {
  i8 q[kSpanElems];
  i32 sums[kSpanStrips];  // as the type wants them: Type::sum_of()
  f32 scales[kSpanStrips];
};

void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
__m256i load_bytes(const u8* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
__m256 load_f16(const u8* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
__m128i load_8_bytes(const u8* at) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)); }
__m256i broadcast(const i8* at) {
  i32 four;
  __builtin_memcpy(&four, at, sizeof four);
  return _mm256_set1_epi32(four);
}

// i16 sums of 4 k of each row, two to a row.
__m256i dot_pairs(__m256i codes, const i8* q) { return _mm256_maddubs_epi16(codes, broadcast(q)); }

__m256i add_pairs(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// codes[i] the low, codes[4 + i] the high nibbles of our half of the strip's i-th 64 bytes.
void load_nibbles(const u8* strip, __m256i* codes) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (u32 i = 0; i < 4; ++i) {
    const __m256i bytes = load_bytes(strip + i * 64);
    codes[i] = _mm256_and_si256(bytes, mask);
    codes[4 + i] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
  }
}

// codes |= (high shifted left by kLeft, right if negative) & mask; what a 16-bit shift carries over
// a byte's border is outside of every mask used.
template <i32 kLeft>
void or_bits(__m256i& codes, __m256i high, __m256i mask) {
  __m256i moved = high;
  if constexpr (kLeft > 0) moved = _mm256_slli_epi16(high, kLeft);
  if constexpr (kLeft < 0) moved = _mm256_srli_epi16(high, -kLeft);
  codes = _mm256_or_si256(codes, _mm256_and_si256(moved, mask));
}

// The codes of q5_0 and q5_k: bit g of a high byte is bit 4 of group g's code.
void load_5_bits(const u8* strip, u32 high_at, __m256i* codes) {
  load_nibbles(strip, codes);
  const __m256i high = load_bytes(strip + high_at);
  const __m256i bit4 = _mm256_set1_epi8(16);
  or_bits<4>(codes[0], high, bit4);
  or_bits<3>(codes[1], high, bit4);
  or_bits<2>(codes[2], high, bit4);
  or_bits<1>(codes[3], high, bit4);
  or_bits<0>(codes[4], high, bit4);
  or_bits<-1>(codes[5], high, bit4);
  or_bits<-2>(codes[6], high, bit4);
  or_bits<-3>(codes[7], high, bit4);
}

// Their dot product with 32 activations; twice 4 pairs stay within i16.
__m256i dot_5_bits(const __m256i* codes, const i8* q) {
  __m256i first = dot_pairs(codes[0], q), second = dot_pairs(codes[4], q + 16);
  for (u32 g = 1; g < 4; ++g) {
    first = _mm256_add_epi16(first, dot_pairs(codes[g], q + g * 4));
    second = _mm256_add_epi16(second, dot_pairs(codes[4 + g], q + 16 + g * 4));
  }
  return _mm256_add_epi32(add_pairs(first), add_pairs(second));
}

__m256 add_scaled(__m256 sum, __m256i dot, __m256 d, f32 d_x) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(d, _mm256_set1_ps(d_x)), sum);
}

// What each type knows: read() takes a strip of half a tile apart, add_term() adds that strip's
// term for one activation row, sum_of() is what it wants of the sums over 16. `half` is 0 or 1.

struct Q8_0 {
  static constexpr TileBlock kAt = kTileQ8_0;
  static constexpr u32 kBlockStrips = 1;
  __m256i codes[kGroups];
  __m256 d;

  static i32 sum_of(const i32*) { return 0; }
  void read(const u8* block, u32, u32 half) {
    for (u32 g = 0; g < kGroups; ++g) {
      codes[g] = load_bytes(block + kAt.strips + g * 64 + half * 32);
    }
    d = load_f16(block + half * 16);
  }
  __m256 add_term(__m256 sum, const PackedAct& act, u32 s) const {
    __m256i dot = _mm256_setzero_si256();
    for (u32 g = 0; g < kGroups; ++g) {
      const __m256i x = broadcast(act.q + s * kStripElems + g * 4);
      const __m256i pairs =
          _mm256_maddubs_epi16(_mm256_abs_epi8(codes[g]), _mm256_sign_epi8(x, codes[g]));
      dot = _mm256_add_epi32(dot, add_pairs(pairs));
    }
    return add_scaled(sum, dot, d, act.scales[s]);
  }
};

struct Q4_0 {
  static constexpr TileBlock kAt = kTileQ4_0;
  static constexpr u32 kBlockStrips = 1;
  __m256i codes[kGroups];
  __m256 d;

  static i32 sum_of(const i32* sums) { return -8 * (sums[0] + sums[1]); }
  void read(const u8* block, u32, u32 half) {
    load_nibbles(block + kAt.strips + half * 32, codes);
    d = load_f16(block + half * 16);
  }
  __m256 add_term(__m256 sum, const PackedAct& act, u32 s) const {
    const i8* q = act.q + s * kStripElems;
    __m256i pairs = dot_pairs(codes[0], q);
    for (u32 g = 1; g < kGroups; ++g) {
      pairs = _mm256_add_epi16(pairs, dot_pairs(codes[g], q + g * 4));
    }
    const __m256i dot = _mm256_add_epi32(add_pairs(pairs), _mm256_set1_epi32(act.sums[s]));
    return add_scaled(sum, dot, d, act.scales[s]);
  }
};

struct Q5_0 {
  static constexpr TileBlock kAt = kTileQ5_0;
  static constexpr u32 kBlockStrips = 1;
  __m256i codes[kGroups];
  __m256 d;

  static i32 sum_of(const i32* sums) { return -16 * (sums[0] + sums[1]); }
  void read(const u8* block, u32, u32 half) {
    load_5_bits(block + kAt.strips + half * 32, kAt.high, codes);
    d = load_f16(block + half * 16);
  }
  __m256 add_term(__m256 sum, const PackedAct& act, u32 s) const {
    const __m256i dot = dot_5_bits(codes, act.q + s * kStripElems);
    return add_scaled(sum, _mm256_add_epi32(dot, _mm256_set1_epi32(act.sums[s])), d, act.scales[s]);
  }
};

// What q4_k and q5_k share.
struct ScaleAndMin {
  static constexpr u32 kBlockStrips = 8;
  __m256 scale, low;

  // The bits of the f32 sum over 32.
  static i32 sum_of(const i32* sums) {
    const f32 sum = static_cast<f32>(sums[0] + sums[1]);
    i32 bits;
    __builtin_memcpy(&bits, &sum, sizeof bits);
    return bits;
  }
  void read_scales(const u8* block, u32 s, u32 half) {
    const u8* bytes = block + kTileQ4K.scales + s % 4 * kTileRows + half * kHalfRows;
    __m256i sc = _mm256_cvtepu8_epi32(load_8_bytes(bytes));
    __m256i m = _mm256_cvtepu8_epi32(load_8_bytes(bytes + 4 * kTileRows));
    if (s < 4) {
      sc = _mm256_and_si256(sc, _mm256_set1_epi32(63));
      m = _mm256_and_si256(m, _mm256_set1_epi32(63));
    } else {
      const __m256i nibbles = _mm256_cvtepu8_epi32(load_8_bytes(bytes + 8 * kTileRows));
      const __m256i bits45 = _mm256_set1_epi32(48);
      sc = _mm256_or_si256(_mm256_and_si256(nibbles, _mm256_set1_epi32(15)),
                           _mm256_and_si256(_mm256_srli_epi32(sc, 2), bits45));
      m = _mm256_or_si256(_mm256_srli_epi32(nibbles, 4),
                          _mm256_and_si256(_mm256_srli_epi32(m, 2), bits45));
    }
    scale = _mm256_mul_ps(load_f16(block + half * 16), _mm256_cvtepi32_ps(sc));
    low = _mm256_mul_ps(load_f16(block + kTileQ4K.dmin + half * 16), _mm256_cvtepi32_ps(m));
  }
  __m256 add_term_of(__m256 sum, __m256i dot, const PackedAct& act, u32 s) const {
    const __m256 sum_x = _mm256_castsi256_ps(_mm256_set1_epi32(act.sums[s]));
    const __m256 value = _mm256_fmsub_ps(_mm256_cvtepi32_ps(dot), scale, _mm256_mul_ps(sum_x, low));
    return _mm256_fmadd_ps(value, _mm256_set1_ps(act.scales[s]), sum);
  }
};

struct Q4K : ScaleAndMin {
  static constexpr TileBlock kAt = kTileQ4K;
  __m256i codes[kGroups];

  void read(const u8* block, u32 s, u32 half) {
    load_nibbles(block + kAt.strips + s * kAt.strip_bytes + half * 32, codes);
    read_scales(block, s, half);
  }
  __m256 add_term(__m256 sum, const PackedAct& act, u32 s) const {
    const i8* q = act.q + s * kStripElems;
    __m256i pairs = dot_pairs(codes[0], q);
    for (u32 g = 1; g < kGroups; ++g) {
      pairs = _mm256_add_epi16(pairs, dot_pairs(codes[g], q + g * 4));
    }
    return add_term_of(sum, add_pairs(pairs), act, s);
  }
};

struct Q5K : ScaleAndMin {
  static constexpr TileBlock kAt = kTileQ5K;
  __m256i codes[kGroups];

  void read(const u8* block, u32 s, u32 half) {
    load_5_bits(block + kAt.strips + s * kAt.strip_bytes + half * 32, kAt.high, codes);
    read_scales(block, s, half);
  }
  __m256 add_term(__m256 sum, const PackedAct& act, u32 s) const {
    return add_term_of(sum, dot_5_bits(codes, act.q + s * kStripElems), act, s);
  }
};

// The scales take the place of vpmaddwd's ones: it multiplies the i16 sums by (sc, sc) and adds.
struct Q6K {
  static constexpr TileBlock kAt = kTileQ6K;
  static constexpr u32 kBlockStrips = 8;
  __m256i codes[kGroups];
  __m256i scales[2];  // (sc, sc) in i16
  __m256i zeros;      // (-32 * sc0, -32 * sc1) in i16
  __m256 d;

  // (sum over the first 16, over the second 16) in i16.
  static i32 sum_of(const i32* sums) {
    return static_cast<i32>((static_cast<u32>(sums[0]) & 0xFFFFu) | static_cast<u32>(sums[1])
                                                                        << 16);
  }
  void read(const u8* block, u32 s, u32 half) {
    const u8* strip = block + kAt.strips + s * kAt.strip_bytes + half * 32;
    load_nibbles(strip, codes);
    const __m256i bits45 = _mm256_set1_epi8(48);
    for (u32 v = 0; v < 2; ++v) {  // bits 2g and 2g + 1 of a byte belong to group 4v + g
      const __m256i high = load_bytes(strip + kAt.high + v * 64);
      or_bits<4>(codes[v * 4], high, bits45);
      or_bits<2>(codes[v * 4 + 1], high, bits45);
      or_bits<0>(codes[v * 4 + 2], high, bits45);
      or_bits<-2>(codes[v * 4 + 3], high, bits45);
    }
    const u8* bytes = block + kAt.scales + s * 2 * kTileRows + half * kHalfRows;
    const __m128i sc0 = _mm_cvtepi8_epi16(load_8_bytes(bytes));
    const __m128i sc1 = _mm_cvtepi8_epi16(load_8_bytes(bytes + kTileRows));
    scales[0] = zip(sc0, sc0);
    scales[1] = zip(sc1, sc1);
    zeros = _mm256_mullo_epi16(zip(sc0, sc1), _mm256_set1_epi16(-32));
    d = load_f16(block + half * 16);
  }
  static __m256i zip(__m128i even, __m128i odd) {
    return _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
  }
  __m256 add_term(__m256 sum, const PackedAct& act, u32 s) const {
    const i8* q = act.q + s * kStripElems;
    __m256i dot = _mm256_madd_epi16(zeros, _mm256_set1_epi32(act.sums[s]));
    for (u32 g = 0; g < kGroups; g += 2) {
      const __m256i pairs =
          _mm256_add_epi16(dot_pairs(codes[g], q + g * 4), dot_pairs(codes[g + 1], q + g * 4 + 4));
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, scales[g / 4]));
    }
    return add_scaled(sum, dot, d, act.scales[s]);
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
      packed[a].sums[s] = Type::sum_of(args.sums + at / 16 + 2 * s);
      packed[a].scales[s] = args.scales[at / kStripElems + s];
    }
  }
}

template <class Type>
constexpr u64 block_bytes() {
  return Type::kAt.strips + Type::kBlockStrips * Type::kAt.strip_bytes;
}

// sums [2 halves][n_acts]; `span` is the tile's bytes of these 256 k. The halves take turns strip
// by strip, as they share lines: half by half, memory rested during the second.
template <class Type, u32 kActs>
void add_span(const Job& job, const u8* span, u32 n_strips, const PackedAct* packed,
              __m256 (*sums)[kActs]) {
  const u32 n_acts = kActs == 1 ? 1 : job.n_acts;
  constexpr u64 kSpanBytes = block_bytes<Type>() * (kSpanStrips / Type::kBlockStrips);
  constexpr u64 kStripBytes = kSpanBytes / kSpanStrips;
  for (u32 s = 0; s < n_strips; ++s) {
    const u8* ahead = span + kSpanBytes + s * kStripBytes;
    for (u64 i = 0; i < kStripBytes; i += 64) prefetch(ahead + i);
    for (u32 half = 0; half < 2; ++half) {
      Type weights;
      weights.read(span + s / Type::kBlockStrips * block_bytes<Type>(), s % Type::kBlockStrips,
                   half);
#pragma GCC unroll 4
      for (u32 a = 0; a < n_acts; ++a) {
        sums[half][a] = weights.add_term(sums[half][a], packed[a], s);
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
  constexpr u64 kSpanBytes = block_bytes<Type>() * (kSpanStrips / Type::kBlockStrips);
  PackedAct packed[kActs];
  __m256 sums[kMatmulTiles * 2][kActs];
  for (u32 i = 0; i < job.n_tiles * 2; ++i) {
    for (u32 a = 0; a < job.n_acts; ++a) sums[i][a] = _mm256_setzero_ps();
  }
  const u8* span = job.tiles;
  for (u32 k = 0; k < job.args.k; k += kSpanElems, span += kSpanBytes) {
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
  const u64 tile_bytes = args.k / (Type::kBlockStrips * kStripElems) * block_bytes<Type>();
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
      return matmul_float_avx2(args);
  }
}

}  // namespace tarn::kernels
