// The class of unpack.h with AVX2: 8 rows, half a tile. Included in files *_avx2.cpp alone.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>

#include "kernels/quant/vector_rows.h"

namespace tarn::kernels {
namespace {

struct Half {
  using Bytes = __m256i;
  using Row = RowBytes;
  static constexpr u32 kRows = kTileRows, kBytes = 32;

  u32 half;  // 0: rows 0..7, 1: rows 8..15

  static Bytes load(const u8* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  static void store(u8* at, Bytes a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), a); }
  static Bytes set(u8 value) { return _mm256_set1_epi8(static_cast<char>(value)); }
  static Bytes both(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
  static Bytes merge(Bytes a, Bytes b, Bytes mask) {
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
  }
  static Bytes flip(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
  static Bytes minus(Bytes a, Bytes b) { return _mm256_sub_epi8(a, b); }
  template <i32 kRight>
  static Bytes right(Bytes a) {
    if constexpr (kRight > 0) return _mm256_srli_epi16(a, kRight);
    if constexpr (kRight < 0) return _mm256_slli_epi16(a, -kRight);
    return a;
  }
  static Bytes table(const u8 (&values)[16]) {
    return _mm256_broadcastsi128_si256(RowBytes::load(values));
  }
  static Bytes pick(Bytes table, Bytes index) { return _mm256_shuffle_epi8(table, index); }

  Bytes codes(const u8* at) const { return load(at + half * 32); }
  __m256 f16(const u8* at) const {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + half * 16)));
  }
  // 2^(e - 128): e - 1 is the exponent's field, but for e = 0 and 1, which are subnormal.
  __m256 e8m0(const u8* at) const {
    const __m256i e = _mm256_cvtepu8_epi32(bytes(at));
    const __m256i ones = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, ones), 23);
    const __m256i subnormal = _mm256_slli_epi32(_mm256_add_epi32(e, ones), 21);
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal));
  }
  // A byte of each of our rows, of the 16 at `at`.
  __m128i bytes(const u8* at) const {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + half * 8));
  }
  __m256 floats_of_u8(const u8* at) const {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(at)));
  }
  __m256 floats_of_i8(const u8* at) const {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(at)));
  }
};

}  // namespace
}  // namespace tarn::kernels
#endif
