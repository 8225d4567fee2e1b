// The class of unpack.h with AVX-512: all rows of a tile. Included in files *_avx512.cpp alone.
#pragma once

#ifdef __AVX512F__
#include <immintrin.h>

#include "kernels/quant/vector_rows.h"

namespace tarn::kernels {
namespace {

struct Whole {
  using Bytes = __m512i;
  using Row = RowBytes;
  static constexpr u32 kRows = kTileRows, kBytes = 64;
  static constexpr i32 kOrAnd = 0xF8;  // ternary logic: a | (b & c)

  static Bytes load(const u8* at) { return _mm512_loadu_si512(at); }
  static void store(u8* at, Bytes a) { _mm512_storeu_si512(at, a); }
  static Bytes set(u8 value) { return _mm512_set1_epi8(static_cast<char>(value)); }
  static Bytes both(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
  static Bytes merge(Bytes a, Bytes b, Bytes mask) {
    return _mm512_ternarylogic_epi32(a, b, mask, kOrAnd);
  }
  static Bytes flip(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
  static Bytes minus(Bytes a, Bytes b) { return _mm512_sub_epi8(a, b); }
  template <i32 kRight>
  static Bytes right(Bytes a) {
    if constexpr (kRight > 0) return _mm512_srli_epi16(a, kRight);
    if constexpr (kRight < 0) return _mm512_slli_epi16(a, -kRight);
    return a;
  }
  static Bytes table(const u8 (&values)[16]) {
    return _mm512_broadcast_i32x4(RowBytes::load(values));
  }
  static Bytes pick(Bytes table, Bytes index) { return _mm512_shuffle_epi8(table, index); }

  static Bytes codes(const u8* at) { return load(at); }
  static __m512 f16(const u8* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  // 2^(e - 128): e - 1 is the exponent's field, but for e = 0 and 1, which are subnormal.
  static __m512 e8m0(const u8* at) {
    const __m512i e = u8_as_i32(at), ones = _mm512_set1_epi32(1);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, ones), 23);
    const __m512i subnormal = _mm512_slli_epi32(_mm512_add_epi32(e, ones), 21);
    return _mm512_castsi512_ps(_mm512_max_epi32(normal, subnormal));
  }
  // The 16 bytes at `at`.
  static __m512i u8_as_i32(const u8* at) { return _mm512_cvtepu8_epi32(RowBytes::load(at)); }
  static __m512i i8_as_i32(const u8* at) { return _mm512_cvtepi8_epi32(RowBytes::load(at)); }
};

}  // namespace
}  // namespace tarn::kernels
#endif
