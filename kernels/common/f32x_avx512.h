// Sixteen f32 in a register, with the names that the vector bodies (*_vector.h) use; f32x_<isa>.h
// has the same struct for another ISA. Only files *_avx512.cpp may include this, and everything is
// in an anonymous namespace. Otherwise the linker could keep an AVX-512 copy of an inline function
// for callers on machines without AVX-512.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>

#include "kernels/common/exp_f32.h"
#include "platform/base/types.h"

namespace tarn::kernels {
namespace {

struct F32x {
  using V = __m512;
  using Words = __m512i;  // 32-bit words, one a lane
  static constexpr u32 kLanes = 16;

  static V zero() { return _mm512_setzero_ps(); }
  static V set(f32 value) { return _mm512_set1_ps(value); }
  static V load(const f32* source) { return _mm512_loadu_ps(source); }
  static void store(f32* target, V v) { _mm512_storeu_ps(target, v); }
  // Loads the first n lanes, n <= kLanes; the others are zeros, and memory beyond is not touched.
  static V load_some(const f32* source, u32 n) { return _mm512_maskz_loadu_ps(first(n), source); }
  static void store_some(f32* target, V v, u32 n) { _mm512_mask_storeu_ps(target, first(n), v); }
  // v in the first n lanes, `rest` in the others; n may be 0 or above kLanes.
  static V keep_first(V v, u32 n, f32 rest) { return _mm512_mask_mov_ps(set(rest), first(n), v); }

  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  // a * b + c, rounded once.
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  // Returns the second operand if either is NaN.
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  static V negate(V v) {
    return _mm512_castsi512_ps(_mm512_xor_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(kSign)));
  }

  // The fixed tree over 16 lanes, given as 16/kLanes registers.
  static f32 sum16(const V (&lanes)[1]) {
    const __m256 eight = _mm256_add_ps(low(lanes[0]), high(lanes[0]));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static f32 max_lane(V v) {
    const __m256 eight = _mm256_max_ps(low(v), high(v));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  // 2^n of an n within -127 (0) and 128 (inf), whose last nine bits are v's; or v is NaN.
  static V power_of_low_bits(V v) {
    const __m512i n = _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
  }

  static V load_f16(const u8* source) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
  }
  static void store_f16(u8* target, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), to_f16(v));
  }
  static V load_i8(const u8* source) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
  }
  // Loads elements [i, i + kLanes) of 32, stored in 16 bytes as q + 8 in 4 bits each, the second 16
  // elements in the high halves; returns q.
  static V load_i4(const u8* source, u32 i) {
    const __m512i bytes = _mm512_cvtepu8_epi32(load_16_bytes(source));
    return from_u4(_mm512_srl_epi32(bytes, _mm_cvtsi32_si128(static_cast<i32>(i / 16 * 4))));
  }
  // All 32 elements of such 16 bytes, as i8.
  static void unpack_i4(const u8* source, u8* target) {
    const __m128i bytes = load_16_bytes(source), fours = _mm_set1_epi8(15);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), fours);
    const __m256i q = _mm256_set_m128i(high, _mm_and_si128(bytes, fours));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target),
                        _mm256_sub_epi8(q, _mm256_set1_epi8(8)));
  }
  // Rounded to nearest even; every lane must fit.
  static void store_i8(u8* target, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target),
                     _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  static f32 f16_at(const u8* source) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(source)));
  }

  // |v| as integers, whose order is that of the magnitudes with NaN above inf.
  static Words magnitude_bits(V v) {
    return _mm512_and_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
  }
  static Words max_words(Words a, Words b) { return _mm512_max_epi32(a, b); }
  static f32 max_magnitude(Words bits) {
    return _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32(_mm512_reduce_max_epi32(bits))));
  }

  // out[j], lane r = word j of row r, of the first 16 bytes of kLanes rows, `stride` bytes apart.
  static void load_columns(const u8* rows, u64 stride, Words (&out)[4]) {
    __m512i a[4];  // 128-bit lane w of a[r]: row r + 4w
    for (u32 r = 0; r < 4; ++r, rows += stride) {
      a[r] = _mm512_castsi128_si512(load_16_bytes(rows));
      a[r] = _mm512_mask_broadcast_i32x4(a[r], 0x00f0, load_16_bytes(rows + 4 * stride));
      a[r] = _mm512_mask_broadcast_i32x4(a[r], 0x0f00, load_16_bytes(rows + 8 * stride));
      a[r] = _mm512_mask_broadcast_i32x4(a[r], 0xf000, load_16_bytes(rows + 12 * stride));
    }
    const __m512i low01 = _mm512_unpacklo_epi32(a[0], a[1]);
    const __m512i high01 = _mm512_unpackhi_epi32(a[0], a[1]);
    const __m512i low23 = _mm512_unpacklo_epi32(a[2], a[3]);
    const __m512i high23 = _mm512_unpackhi_epi32(a[2], a[3]);
    out[0] = _mm512_unpacklo_epi64(low01, low23);
    out[1] = _mm512_unpackhi_epi64(low01, low23);
    out[2] = _mm512_unpacklo_epi64(high01, high23);
    out[3] = _mm512_unpackhi_epi64(high01, high23);
  }
  // Columns of 16 rows of 8 f16 each.
  static void transpose_halves(const u8* rows, u64 stride, u8* columns, u64 column_bytes) {
    Words pairs[4];
    load_columns(rows, stride, pairs);
    for (const Words pair : pairs) {
      const Words split = split_halves(pair);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(columns), _mm512_castsi512_si256(split));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(columns + column_bytes),
                          _mm512_extracti64x4_epi64(split, 1));
      columns += 2 * column_bytes;
    }
  }
  // The two f16 of each word: the first ones of all lanes, and the second ones.
  static void widen_f16(Words words, V (&out)[2]) {
    const __m512i split = split_halves(words);
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(split));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(split, 1));
  }
  // The low (half = 0) or the high halves of each word's bytes, less 8, as bytes.
  static Words nibbles(Words words, u32 half) {
    const __m512i moved = _mm512_srl_epi32(words, _mm_cvtsi32_si128(static_cast<i32>(4 * half)));
    return _mm512_sub_epi8(_mm512_and_si512(moved, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
  }
  // Words of four i8 as load_bytes() reads them.
  static void store_bytes(u8* target, Words words) {
    _mm512_storeu_si512(target, _mm512_xor_si512(words, _mm512_set1_epi8(-128)));
  }

  // Dot products of i8 by VNNI, whose first operand is unsigned: a tile holds x + 128, and a sum
  // starts at -128 times the sum of its other operand.
  using Bytes = Words;
  static constexpr u32 kQueryWords = 8;  // of 32 elements
  static void store_query(i32* target, const i8* q) { __builtin_memcpy(target, q, 32); }
  static Bytes load_bytes(const u8* source) { return _mm512_loadu_si512(source); }
  static Words start_dot(i32 q_sum) { return _mm512_set1_epi32(-128 * q_sum); }
  // Adds to each lane the products of its four bytes and of the word at q.
  static Words add_dot(Words sums, Bytes bytes, const i32* q) {
    return _mm512_dpbusd_epi32(sums, bytes, _mm512_set1_epi32(*q));
  }
  static V from_words(Words words) { return _mm512_cvtepi32_ps(words); }

  // An instruction of its own: GCC drops a function that does nothing but __builtin_prefetch.
  static void prefetch(const u8* line) { __asm__ volatile("prefetcht0 (%0)" : : "r"(line)); }

  // Swaps the values of neighbouring pairs; loads each of 8 values twice.
  static V swap_pairs(V v) { return _mm512_permute_ps(v, 0xb1); }
  static V load_doubled(const f32* source) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(source)));
  }
  static V negate_even(V v) {
    const __m512i signs = _mm512_set1_epi64(static_cast<i64>(0x80000000u));
    return _mm512_castsi512_ps(_mm512_xor_epi32(_mm512_castps_si512(v), signs));
  }

 private:
  static constexpr i32 kSign = static_cast<i32>(0x80000000u);

  static __m512i split_halves(Words words) {
    const __m512i evens_first =
        _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1,  //
                         30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutexvar_epi16(evens_first, words);
  }
  static V from_u4(__m512i words) {
    const __m512i q = _mm512_and_si512(words, _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(q, _mm512_set1_epi32(8)));
  }
  static __mmask16 first(u32 n) {
    return static_cast<__mmask16>(n >= kLanes ? 0xffffu : (1u << n) - 1u);
  }
  static __m256 low(V v) { return _mm512_castps512_ps256(v); }
  static __m256 high(V v) { return _mm512_extractf32x8_ps(v, 1); }
  static __m256i to_f16(V v) {
    // The form without a mask is a macro in GCC's -O0 header, and warns of its own sign conversion.
    return _mm512_maskz_cvtps_ph(first(16), v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m128i load_16_bytes(const u8* source) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  }
};

}  // namespace
}  // namespace tarn::kernels
#endif
