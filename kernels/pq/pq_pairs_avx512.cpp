#include "kernels/common/f32x_avx512.h"
#include "kernels/pq/pq_pairs_vector.h"

namespace tarn::kernels {
namespace {

// Marks as 256 words of 16 bits in 8 registers: word c0 * 4 + c1 / 16, bit c1 % 16.
struct MarkTable {
  __m512i words[8];
  explicit MarkTable(const u64* marks) {
    for (u32 j = 0; j < 8; ++j) words[j] = _mm512_loadu_si512(marks + 8 * j);
  }
  // A bit for each of 32 tokens.
  u32 operator()(__m512i c0, __m512i c1) const {
    const __m512i place = _mm512_or_si512(_mm512_slli_epi16(c0, 2), _mm512_srli_epi16(c1, 4));
    __m512i found[4];
    for (u32 j = 0; j < 4; ++j) {  // by the low 6 bits
      found[j] = _mm512_permutex2var_epi16(words[2 * j], place, words[2 * j + 1]);
    }
    const __mmask32 bit6 = _mm512_test_epi16_mask(place, _mm512_set1_epi16(64));
    const __mmask32 bit7 = _mm512_test_epi16_mask(place, _mm512_set1_epi16(128));
    const __m512i low = _mm512_mask_mov_epi16(found[0], bit6, found[1]);
    const __m512i high = _mm512_mask_mov_epi16(found[2], bit6, found[3]);
    const __m512i bit =
        _mm512_sllv_epi16(_mm512_set1_epi16(1), _mm512_and_si512(c1, _mm512_set1_epi16(15)));
    return _mm512_test_epi16_mask(_mm512_mask_mov_epi16(low, bit7, high), bit);
  }
};

__m512i wide_codes(const u8* codes, __mmask32 mask) {
  return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, codes));
}

// place + lane of each set bit, ascending.
u32 put(u32 lanes, u32 place, u32* out) {
  u32 n_out = 0;
  for (u32 half = 0; half < 2; ++half, lanes >>= 16, place += 16) {
    const __mmask16 some = static_cast<__mmask16>(lanes);
    if (some == 0) continue;
    const __m512i places =
        _mm512_add_epi32(_mm512_set1_epi32(static_cast<i32>(place)),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const u32 n = static_cast<u32>(__builtin_popcount(some));
    _mm512_mask_storeu_epi32(out + n_out, static_cast<__mmask16>((1u << n) - 1u),
                             _mm512_maskz_compress_epi32(some, places));
    n_out += n;
  }
  return n_out;
}

struct Pairs16 : PqPairsVector<F32x> {
  static u32 above(const u32* keys, u32 key) {
    return _mm512_cmpgt_epu32_mask(_mm512_loadu_si512(keys),
                                   _mm512_set1_epi32(static_cast<i32>(key)));
  }
  static u32 equal(const u32* keys, u32 key) {
    return _mm512_cmpeq_epu32_mask(_mm512_loadu_si512(keys),
                                   _mm512_set1_epi32(static_cast<i32>(key)));
  }
  static u32 take(const PqPairsArgs& args, const PqMarks& marks, u32 n_equal) {
    const MarkTable above(marks.above), equal(marks.equal);
    u32 n_out = 0;
    pq_for_pair_tiles(args, [&](const u8* first, const u8* second, u32 begin, u32 n) {
      for (u32 t = 0; t < n; t += 32) {
        const __mmask32 mask = n - t < 32 ? (1u << (n - t)) - 1u : ~0u;
        const __m512i c0 = wide_codes(first + t, mask), c1 = wide_codes(second + t, mask);
        u32 lanes = above(c0, c1) & mask;
        if (n_equal != 0) {
          u32 equals = equal(c0, c1) & mask;
          for (; equals != 0 && n_equal != 0; equals &= equals - 1, --n_equal) {
            lanes |= equals & -equals;
          }
        }
        if (lanes != 0) n_out += put(lanes, begin + t, args.out + n_out);
      }
    });
    return n_out;
  }
};

}  // namespace

u32 pq_pairs_avx512(const PqPairsArgs& args) { return choose_by_pairs<Pairs16>(args); }

}  // namespace tarn::kernels
