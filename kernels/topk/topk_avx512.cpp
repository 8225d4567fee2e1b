#include <immintrin.h>

#include "kernels/topk/topk_radix.h"

namespace tarn::kernels {
namespace {

struct Lanes16 {
  static constexpr u32 kLanes = 16;
  static __m512i load(const f32* values, u32 n) {
    const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1u);
    const __m512 some = _mm512_maskz_loadu_ps(mask, values);
    const __m512i bits = _mm512_castps_si512(_mm512_add_ps(some, _mm512_setzero_ps()));
    const __m512i turned =
        _mm512_and_epi32(_mm512_srai_epi32(bits, 31), _mm512_set1_epi32(0x7fffffff));
    return _mm512_xor_epi32(bits, turned);
  }
  static void bins(__m512i keys, u32 shift, u32* out) {
    const __m512i all = _mm512_xor_epi32(keys, _mm512_set1_epi32(static_cast<i32>(0x80000000u)));
    _mm512_storeu_si512(out, _mm512_srl_epi32(all, _mm_cvtsi32_si128(static_cast<i32>(shift))));
  }
  static u32 above(__m512i keys, i32 key) {
    return _mm512_cmpgt_epi32_mask(keys, _mm512_set1_epi32(key));
  }
  static u32 equal(__m512i keys, i32 key, u32 shift) {
    const __m512i mask = _mm512_set1_epi32(static_cast<i32>(~0u << shift));
    return _mm512_cmpeq_epi32_mask(_mm512_and_epi32(keys, mask), _mm512_set1_epi32(key));
  }
  static void put(u32 lanes, u32 place, u32* out) {
    const __m512i places =
        _mm512_add_epi32(_mm512_set1_epi32(static_cast<i32>(place)),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i chosen = _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), places);
    const u32 n = static_cast<u32>(__builtin_popcount(lanes));
    _mm512_mask_storeu_epi32(out, static_cast<__mmask16>((1u << n) - 1u), chosen);
  }
};

}  // namespace

u32 top_k_avx512(const TopKArgs& args) { return TopKRadix<Lanes16>(args).run(); }

}  // namespace tarn::kernels
