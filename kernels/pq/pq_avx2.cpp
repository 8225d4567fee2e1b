#include "kernels/common/f32x_avx2.h"
#include "kernels/pq/pq_tiles.h"
#include "kernels/pq/pq_vector.h"

namespace tarn::kernels {
namespace {

constexpr u32 kLanes = 8;

u32 equal_lanes(__m256 v, f32 value) {
  return static_cast<u32>(_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(value), _CMP_EQ_OQ)));
}

// Four of them as i64 in units of 2^-24; see to_fixed of the generic body.
__m256i to_fixed(__m128 x) {
  const __m128 clamped = _mm_min_ps(_mm_max_ps(x, _mm_set1_ps(-65536.0f)), _mm_set1_ps(65536.0f));
  const __m256d round = _mm256_set1_pd(0x1.8p52);
  const __m256d scaled = _mm256_mul_pd(_mm256_cvtps_pd(clamped), _mm256_set1_pd(0x1p24));
  return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(scaled, round)),
                          _mm256_castpd_si256(round));
}

f32 finish(const PqTile& tile, f32 before, f32 found) {
  const f32 sum = tile.is_first ? found : before + found;
  return tile.is_last ? sum * tile.scale : sum;
}

// scores = (is_first ? 0 : scores) + lut[codes], scaled in the last sub-space.
void add_subspace(const u8* codes, const f32* lut, const PqTile& tile, f32* scores) {
  const __m256 scale = _mm256_set1_ps(tile.scale);
  u32 t = 0;
  for (; t + kLanes <= tile.n_tokens; t += kLanes) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + t));
    __m256 sum = _mm256_i32gather_ps(lut, _mm256_cvtepu8_epi32(bytes), sizeof(f32));
    if (!tile.is_first) sum = _mm256_add_ps(_mm256_loadu_ps(scores + t), sum);
    if (tile.is_last) sum = _mm256_mul_ps(sum, scale);
    _mm256_storeu_ps(scores + t, sum);
  }
  for (; t < tile.n_tokens; ++t) scores[t] = finish(tile, scores[t], lut[codes[t]]);
}

}  // namespace

void pq_load_avx2(const PqLoadArgs& args) { PqVector<F32x>::load_keys(args); }
void pq_assign_avx2(const PqAssignArgs& args) { PqVector<F32x>::assign(args, equal_lanes); }
void pq_lut_avx2(const PqLutArgs& args) { PqVector<F32x>::lut(args); }
void pq_weigh_avx2(const PqWeighArgs& args) { PqVector<F32x>::weigh(args); }

void pq_accumulate_avx2(const PqAccumulateArgs& args) {
  constexpr u32 kWords = 4;  // i64 of a register
  const u32 n_whole = args.dims - args.dims % kWords;
  for (u32 r = 0; r < args.n_rows; ++r) {
    const f32* x = args.x + r * args.x_stride;
    i64* sums = args.sums + u64{args.codes[r]} * args.dims;
    for (u32 i = 0; i < n_whole; i += kWords) {
      __m256i* at = reinterpret_cast<__m256i*>(sums + i);
      const __m256i fixed = to_fixed(_mm_loadu_ps(x + i));
      _mm256_storeu_si256(at, _mm256_add_epi64(_mm256_loadu_si256(at), fixed));
    }
    for (u32 i = n_whole; i < args.dims; ++i) {
      sums[i] += _mm256_extract_epi64(to_fixed(_mm_set1_ps(x[i])), 0);
    }
    args.counts[args.codes[r]] += 1;
  }
}

void pq_score_avx2(const PqScoreArgs& args) { pq_for_tiles(args, add_subspace); }

}  // namespace tarn::kernels
