// kernels/quant/activations_avx2.cpp: see activations_generic.cpp for what it computes.
#include <immintrin.h>

#include "kernels/quant/activations.h"

namespace tarn::kernels {
namespace {

constexpr u32 kBlock = 32;

// Largest of 8 non-negative i32.
u32 largest_of(__m256i x) {
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  const __m128i one = _mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1));
  return static_cast<u32>(_mm_cvtsi128_si32(one));
}

// Four vectors of i32 in [-127, 127] to 32 i8 in order.
__m256i pack_i8(const __m256i (&q)[4]) {
  const __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
  const __m256i mixed = _mm256_packs_epi16(low, high);  // packing works within lanes
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

void quantize_block(const f32* x, i8* q_out, f32* scale, i32* sums) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 v[4];
  __m256i largest8 = _mm256_setzero_si256();
  for (u32 i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + i * 8);
    // Magnitudes compare as integers, infinity and NaN above every number.
    largest8 = _mm256_max_epi32(largest8, _mm256_castps_si256(_mm256_and_ps(v[i], magnitude)));
  }
  const u32 bits = largest_of(largest8);
  f32 largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  *scale = largest / 127.0f;
  if (bits < kSmallestQuantizableBits || bits >= kInfinityBits) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q_out), _mm256_setzero_si256());
    sums[0] = sums[1] = 0;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(127.0f / largest);
  __m256i q[4];
  for (u32 i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  const __m256i bytes = pack_i8(q);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q_out), bytes);

  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const __m256i eights = _mm256_add_epi32(fours, _mm256_srli_epi64(fours, 32));
  const __m256i sixteens = _mm256_add_epi32(eights, _mm256_unpackhi_epi64(eights, eights));
  sums[0] = _mm256_extract_epi32(sixteens, 0);
  sums[1] = _mm256_extract_epi32(sixteens, 4);
}

}  // namespace

void quantize_activations_avx2(const QuantizeActivationsArgs& args) {
  const u64 k = args.k;
  for (u64 n = 0; n < args.n_rows; ++n) {
    const f32* x = args.x + n * args.x_stride;
    for (u64 i = 0; i < k; i += kBlock) {
      quantize_block(x + i, args.q + n * k + i, args.scales + (n * k + i) / 32,
                     args.sums + (n * k + i) / 16);
    }
  }
}

}  // namespace tarn::kernels
