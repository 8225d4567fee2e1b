#include "kernels/common/f32x_avx512.h"
#include "kernels/pq/pq_tiles.h"
#include "kernels/pq/pq_vector.h"

namespace tarn::kernels {
namespace {

constexpr u32 kLanes = 16;

u32 equal_lanes(__m512 v, f32 value) {
  return _mm512_cmp_ps_mask(v, _mm512_set1_ps(value), _CMP_EQ_OQ);
}

__mmask16 first(u32 n) { return static_cast<__mmask16>(n >= kLanes ? 0xffffu : (1u << n) - 1u); }

// A table of kRegisters * 16 entries in registers: a permutation picks within two of them by the
// low 5 bits of the code, and each higher bit picks between halves.
template <u32 kRegisters>
struct Table {
  __m512 entries[kRegisters];
  explicit Table(const f32* lut) {
    for (u32 j = 0; j < kRegisters; ++j) entries[j] = _mm512_loadu_ps(lut + j * kLanes);
  }
  __m512 operator()(__m512i code) const {
    if constexpr (kRegisters == 1) return _mm512_permutexvar_ps(code, entries[0]);
    __m512 found[kRegisters];
    for (u32 j = 0; j + 1 < kRegisters; j += 2) {
      found[j / 2] = _mm512_permutex2var_ps(entries[j], code, entries[j + 1]);
    }
    for (u32 n = kRegisters / 2, bit = 32; n > 1; n /= 2, bit *= 2) {
      const __mmask16 upper =
          _mm512_test_epi32_mask(code, _mm512_set1_epi32(static_cast<i32>(bit)));
      for (u32 j = 0; j < n / 2; ++j) {
        found[j] = _mm512_mask_mov_ps(found[2 * j], upper, found[2 * j + 1]);
      }
    }
    return found[0];
  }
};

// scores = (is_first ? 0 : scores) + table[codes], scaled in the last sub-space.
template <u32 kRegisters>
void add_looked_up(const u8* codes, const f32* lut, const PqTile& tile, f32* scores) {
  const Table<kRegisters> table(lut);
  const __m512 scale = _mm512_set1_ps(tile.scale);
  for (u32 t = 0; t < tile.n_tokens; t += kLanes) {
    const __mmask16 mask = first(tile.n_tokens - t);
    const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, codes + t));
    __m512 sum = table(code);
    if (!tile.is_first) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, scores + t), sum);
    if (tile.is_last) sum = _mm512_mul_ps(sum, scale);
    _mm512_mask_storeu_ps(scores + t, mask, sum);
  }
}

void add_subspace(u32 n_padded, const u8* codes, const f32* lut, const PqTile& tile, f32* scores) {
  switch (n_padded / kLanes) {
    case 1:
      return add_looked_up<1>(codes, lut, tile, scores);
    case 2:
      return add_looked_up<2>(codes, lut, tile, scores);
    case 4:
      return add_looked_up<4>(codes, lut, tile, scores);
    case 8:
      return add_looked_up<8>(codes, lut, tile, scores);
    default:
      return add_looked_up<16>(codes, lut, tile, scores);
  }
}

}  // namespace

void pq_load_avx512(const PqLoadArgs& args) { PqVector<F32x>::load_keys(args); }
void pq_assign_avx512(const PqAssignArgs& args) { PqVector<F32x>::assign(args, equal_lanes); }
void pq_lut_avx512(const PqLutArgs& args) { PqVector<F32x>::lut(args); }
void pq_weigh_avx512(const PqWeighArgs& args) { PqVector<F32x>::weigh(args); }

void pq_accumulate_avx512(const PqAccumulateArgs& args) {
  constexpr u32 kWords = 8;  // i64 of a register
  const __m256 low = _mm256_set1_ps(-65536.0f), high = _mm256_set1_ps(65536.0f);
  const __m256 per_unit = _mm256_set1_ps(0x1p24f);  // exact: the product has the bits of x
  for (u32 r = 0; r < args.n_rows; ++r) {
    const f32* x = args.x + r * args.x_stride;
    i64* sums = args.sums + u64{args.codes[r]} * args.dims;
    for (u32 i = 0; i < args.dims; i += kWords) {
      const u32 n = args.dims - i;
      const __mmask8 mask = static_cast<__mmask8>(n >= kWords ? 0xffu : (1u << n) - 1u);
      const __m256 some = _mm256_maskz_loadu_ps(mask, x + i);
      const __m256 clamped = _mm256_min_ps(_mm256_max_ps(some, low), high);
      const __m512i fixed = _mm512_cvtps_epi64(_mm256_mul_ps(clamped, per_unit));
      const __m512i before = _mm512_maskz_loadu_epi64(mask, sums + i);
      _mm512_mask_storeu_epi64(sums + i, mask, _mm512_add_epi64(before, fixed));
    }
    args.counts[args.codes[r]] += 1;
  }
}

void pq_score_avx512(const PqScoreArgs& args) {
  pq_for_tiles(args, [&](const u8* codes, const f32* lut, const PqTile& tile, f32* scores) {
    add_subspace(args.n_padded, codes, lut, tile, scores);
  });
}

}  // namespace tarn::kernels
