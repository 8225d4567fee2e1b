// The class of unpack.h for one byte of each of 16 rows, with AVX2 and AVX-512 alike. Included in
// files of an instruction set alone.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>

#include "kernels/quant/unpack.h"

namespace tarn::kernels {
namespace {

struct RowBytes {
  using Bytes = __m128i;
  static constexpr u32 kRows = kTileRows, kBytes = 16;
  static Bytes load(const u8* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
  static void store(u8* at, Bytes a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(at), a); }
  static Bytes set(u8 value) { return _mm_set1_epi8(static_cast<char>(value)); }
  static Bytes both(Bytes a, Bytes b) { return _mm_and_si128(a, b); }
  static Bytes merge(Bytes a, Bytes b, Bytes mask) {
    return _mm_or_si128(a, _mm_and_si128(b, mask));
  }
  static Bytes minus(Bytes a, Bytes b) { return _mm_sub_epi8(a, b); }
  template <i32 kRight>
  static Bytes right(Bytes a) {
    if constexpr (kRight > 0) return _mm_srli_epi16(a, kRight);
    if constexpr (kRight < 0) return _mm_slli_epi16(a, -kRight);
    return a;
  }
};

}  // namespace
}  // namespace tarn::kernels
#endif
