#include <immintrin.h>

#include "kernels/topk/topk_radix.h"

namespace tarn::kernels {
namespace {

struct Lanes8 {
  static constexpr u32 kLanes = 8;
  static __m256i load(const f32* values, u32 n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<i32>(n)), lane);
    const __m256 some = n == kLanes ? _mm256_loadu_ps(values) : _mm256_maskload_ps(values, mask);
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(some, _mm256_setzero_ps()));
    const __m256i turned =
        _mm256_and_si256(_mm256_srai_epi32(bits, 31), _mm256_set1_epi32(0x7fffffff));
    return _mm256_xor_si256(bits, turned);
  }
  static void bins(__m256i keys, u32 shift, u32* out) {
    const __m256i all = _mm256_xor_si256(keys, _mm256_set1_epi32(static_cast<i32>(0x80000000u)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                        _mm256_srl_epi32(all, _mm_cvtsi32_si128(static_cast<i32>(shift))));
  }
  static u32 above(__m256i keys, i32 key) {
    return lanes_of(_mm256_cmpgt_epi32(keys, _mm256_set1_epi32(key)));
  }
  static u32 equal(__m256i keys, i32 key, u32 shift) {
    const __m256i mask = _mm256_set1_epi32(static_cast<i32>(~0u << shift));
    return lanes_of(_mm256_cmpeq_epi32(_mm256_and_si256(keys, mask), _mm256_set1_epi32(key)));
  }
  static void put(u32 lanes, u32 place, u32* out) {
    for (; lanes != 0; lanes &= lanes - 1) {
      *out++ = place + static_cast<u32>(__builtin_ctz(lanes));
    }
  }

 private:
  static u32 lanes_of(__m256i mask) {
    return static_cast<u32>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
  }
};

}  // namespace

u32 top_k_avx2(const TopKArgs& args) { return TopKRadix<Lanes8>(args).run(); }

}  // namespace tarn::kernels
