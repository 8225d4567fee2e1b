// Eight f32 in a register, with the names and rules of f32x_avx512.h.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>

#include "kernels/common/exp_f32.h"
#include "platform/base/types.h"

namespace tarn::kernels {
namespace {

struct F32x {
  using V = __m256;
  using Words = __m256i;
  static constexpr u32 kLanes = 8;

  static V zero() { return _mm256_setzero_ps(); }
  static V set(f32 value) { return _mm256_set1_ps(value); }
  static V load(const f32* source) { return _mm256_loadu_ps(source); }
  static void store(f32* target, V v) { _mm256_storeu_ps(target, v); }
  static V load_some(const f32* source, u32 n) { return _mm256_maskload_ps(source, first(n)); }
  static void store_some(f32* target, V v, u32 n) { _mm256_maskstore_ps(target, first(n), v); }
  static V keep_first(V v, u32 n, f32 rest) {
    return _mm256_blendv_ps(set(rest), v, _mm256_castsi256_ps(first(n)));
  }

  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V min(V a, V b) { return _mm256_min_ps(a, b); }
  static V negate(V v) { return _mm256_xor_ps(v, set(-0.0f)); }

  static f32 sum16(const V (&lanes)[2]) {
    const V eight = add(lanes[0], lanes[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static f32 max_lane(V v) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  static V power_of_low_bits(V v) {
    const __m256i n = _mm256_add_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
  }

  static V load_f16(const u8* source) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  }
  static void store_f16(u8* target, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static V load_i8(const u8* source) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source))));
  }
  static V load_i4(const u8* source, u32 i) {
    const __m256i bytes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source + i % 16)));
    const __m256i q = _mm256_srl_epi32(bytes, _mm_cvtsi32_si128(static_cast<i32>(i / 16 * 4)));
    return from_u4(q);
  }
  static void unpack_i4(const u8* source, u8* target) {
    const __m128i bytes = load_16_bytes(source), fours = _mm_set1_epi8(15);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), fours);
    const __m256i q = _mm256_set_m128i(high, _mm_and_si128(bytes, fours));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm256_sub_epi8(q, _mm256_set1_epi8(8)));
  }
  static void store_i8(u8* target, V v) {
    const __m256i words = _mm256_cvtps_epi32(v);
    const __m128i halves =
        _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(target), _mm_packs_epi16(halves, halves));
  }
  static f32 f16_at(const u8* source) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(source)));
  }

  static Words magnitude_bits(V v) {
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
  }
  static Words max_words(Words a, Words b) { return _mm256_max_epi32(a, b); }
  static f32 max_magnitude(Words bits) {
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
  }

  static void load_columns(const u8* rows, u64 stride, Words (&out)[4]) {
    __m256i a[4];  // 128-bit lane w of a[r]: row r + 4w
    for (u32 r = 0; r < 4; ++r, rows += stride) {
      a[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows)),
                                     load_16_bytes(rows + 4 * stride), 1);
    }
    const __m256i low01 = _mm256_unpacklo_epi32(a[0], a[1]);
    const __m256i high01 = _mm256_unpackhi_epi32(a[0], a[1]);
    const __m256i low23 = _mm256_unpacklo_epi32(a[2], a[3]);
    const __m256i high23 = _mm256_unpackhi_epi32(a[2], a[3]);
    out[0] = _mm256_unpacklo_epi64(low01, low23);
    out[1] = _mm256_unpackhi_epi64(low01, low23);
    out[2] = _mm256_unpacklo_epi64(high01, high23);
    out[3] = _mm256_unpackhi_epi64(high01, high23);
  }
  static void transpose_halves(const u8* rows, u64 stride, u8* columns, u64 column_bytes) {
    __m256i a[8];  // 128-bit lane w of a[r]: row r + 8w
    for (u32 r = 0; r < 8; ++r, rows += stride) {
      a[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows)),
                                     load_16_bytes(rows + 8 * stride), 1);
    }
    __m256i two[8], four[8];  // neighbouring rows' elements in 2 and 4 columns each
    for (u32 r = 0; r < 8; r += 2) {
      two[r] = _mm256_unpacklo_epi16(a[r], a[r + 1]);
      two[r + 1] = _mm256_unpackhi_epi16(a[r], a[r + 1]);
    }
    for (u32 r = 0; r < 8; r += 4) {
      for (u32 half = 0; half < 2; ++half) {
        four[r + 2 * half] = _mm256_unpacklo_epi32(two[r + half], two[r + 2 + half]);
        four[r + 2 * half + 1] = _mm256_unpackhi_epi32(two[r + half], two[r + 2 + half]);
      }
    }
    for (u32 j = 0; j < 4; ++j, columns += 2 * column_bytes) {
      const __m256i even = _mm256_unpacklo_epi64(four[j], four[j + 4]);
      const __m256i odd = _mm256_unpackhi_epi64(four[j], four[j + 4]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(columns), even);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(columns + column_bytes), odd);
    }
  }
  static void widen_f16(Words words, V (&out)[2]) {
    const __m256i split = split_halves(words);
    out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(split));
    out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(split, 1));
  }
  static Words nibbles(Words words, u32 half) {
    const __m256i moved = _mm256_srl_epi32(words, _mm_cvtsi32_si128(static_cast<i32>(4 * half)));
    return _mm256_sub_epi8(_mm256_and_si256(moved, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
  }
  static void store_bytes(u8* target, Words words) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), words);
  }

  // Bytes of a word as two pairs of i16, {0, 2} and {1, 3}: without VNNI pmaddwd has the most
  // products an instruction that cannot saturate.
  struct Bytes {
    __m256i even, odd;
  };
  static constexpr u32 kQueryWords = 16;
  static void store_query(i32* target, const i8* q) {
    const Bytes pairs = load_bytes(reinterpret_cast<const u8*>(q));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), pairs.even);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target + 8), pairs.odd);
  }
  static Bytes load_bytes(const u8* source) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
  }
  static Words start_dot(i32 /*q_sum*/) { return _mm256_setzero_si256(); }
  static Words add_dot(Words sums, Bytes bytes, const i32* q) {
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(bytes.even, _mm256_set1_epi32(q[0])));
    sums = _mm256_add_epi32(sums, _mm256_madd_epi16(bytes.odd, _mm256_set1_epi32(q[8])));
    __asm__("" : "+x"(sums));  // GCC would add in another order, and keep all products till then
    return sums;
  }
  static V from_words(Words words) { return _mm256_cvtepi32_ps(words); }

  static void prefetch(const u8* line) { __asm__ volatile("prefetcht0 (%0)" : : "r"(line)); }

  static V swap_pairs(V v) { return _mm256_permute_ps(v, 0xb1); }
  static V load_doubled(const f32* source) {
    const __m128 four = _mm_loadu_ps(source);
    return _mm256_set_m128(_mm_unpackhi_ps(four, four), _mm_unpacklo_ps(four, four));
  }
  static V negate_even(V v) {
    return _mm256_xor_ps(v, _mm256_setr_ps(-0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f));
  }

 private:
  static __m256i split_halves(Words words) {
    const __m256i evens_first =
        _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,  //
                         0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(words, evens_first), 0xd8);
  }
  static V from_u4(__m256i words) {
    const __m256i q = _mm256_and_si256(words, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(8)));
  }
  static __m256i first(u32 n) {
    const i32 n_lanes = static_cast<i32>(n < kLanes ? n : kLanes);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n_lanes),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i load_16_bytes(const u8* source) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  }
};

}  // namespace
}  // namespace tarn::kernels
#endif
