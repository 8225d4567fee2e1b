// Everything is one movement: 16 bytes of each of 16 rows become four vectors of 64 bytes, vector i
// holding the rows' i-th dwords. Around it each type first brings a row's bytes into the order in
// which its dwords are wanted. Short tiles are rare (one per tensor) and go to the generic body.
#include <immintrin.h>

#include "kernels/quant/dequant.h"
#include "kernels/quant/types.h"

namespace tarn::kernels {
namespace {

// rows[j] holds row j in its low and row j + 4 in its high lane; out[i] gets dword i of rows 0..7.
void transpose(const __m256i (&rows)[4], __m256i (&out)[4]) {
  const __m256i a = _mm256_unpacklo_epi32(rows[0], rows[1]);
  const __m256i b = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i c = _mm256_unpacklo_epi32(rows[2], rows[3]);
  const __m256i d = _mm256_unpackhi_epi32(rows[2], rows[3]);
  out[0] = _mm256_unpacklo_epi64(a, c);
  out[1] = _mm256_unpackhi_epi64(a, c);
  out[2] = _mm256_unpacklo_epi64(b, d);
  out[3] = _mm256_unpackhi_epi64(b, d);
}

__m256i load_pair(const u8* low, const u8* high) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(high),
                             reinterpret_cast<const __m128i*>(low));
}

void store(u8* at, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), value); }

// For 8 rows, `stride` bytes apart: rows 0..7's dword i goes to out + i * out_stride.
void transpose_bytes(const u8* rows, u64 stride, u8* out, u64 out_stride) {
  __m256i in[4], dwords[4];
  for (u32 j = 0; j < 4; ++j) in[j] = load_pair(rows + j * stride, rows + (j + 4) * stride);
  transpose(in, dwords);
  for (u32 i = 0; i < 4; ++i) store(out + i * out_stride, dwords[i]);
}

// 32 bytes of each of 8 rows with two strips in their nibbles (q4_k's order; q6_k's too) become the
// nibbles of two strips in the tile's order.
void transpose_nibbles(const u8* rows, u64 stride, u8* low_strip, u8* high_strip) {
  const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8(-16);
  __m256i first[4], second[4], dwords[4];
  for (u32 j = 0; j < 4; ++j) {
    const u8* at = rows + j * stride;
    const __m256i begin = load_pair(at, at + 4 * stride);          // elements 0..15
    const __m256i end = load_pair(at + 16, at + 4 * stride + 16);  // elements 16..31
    first[j] = _mm256_or_si256(_mm256_and_si256(begin, low),
                               _mm256_and_si256(_mm256_slli_epi16(end, 4), high));
    second[j] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(begin, 4), low),
                                _mm256_and_si256(end, high));
  }
  transpose(first, dwords);
  for (u32 i = 0; i < 4; ++i) store(low_strip + i * 64, dwords[i]);
  transpose(second, dwords);
  for (u32 i = 0; i < 4; ++i) store(high_strip + i * 64, dwords[i]);
}

// `n` bytes of each row, byte i of row r to out[i * 16 + r]; `unit` bytes stay together.
void scatter(const u8* rows, u64 stride, u32 n_units, u32 unit, u8* out) {
  for (u32 r = 0; r < kTileRows; ++r) {
    for (u32 i = 0; i < n_units; ++i) {
      for (u32 c = 0; c < unit; ++c) {
        out[(i * kTileRows + r) * unit + c] = rows[r * stride + i * unit + c];
      }
    }
  }
}

// Swaps the bits of x that `mask` selects with those `shift` places above them (Warren, Hacker's
// Delight, 2nd edition, section 7-3: transposing a bit matrix).
template <int kShift>
__m256i swap_bits64(__m256i x, i64 mask) {
  const __m256i t =
      _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, kShift)), _mm256_set1_epi64x(mask));
  return _mm256_xor_si256(_mm256_xor_si256(x, t), _mm256_slli_epi64(t, kShift));
}

template <int kShift>
__m256i swap_bits32(__m256i x, i32 mask) {
  const __m256i t =
      _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi32(x, kShift)), _mm256_set1_epi32(mask));
  return _mm256_xor_si256(_mm256_xor_si256(x, t), _mm256_slli_epi32(t, kShift));
}

// 1 bit, a strip alone, 8 rows, one to a dword: bit 4j + c becomes bit j of byte c, a rotation of
// the 5-bit index by two places, done as four exchanges of two index bits each.
__m256i bits_of_1(__m256i rows) {
  __m256i x = swap_bits32<14>(rows, 0x0000CCCC);  // index bits 4 and 1
  x = swap_bits32<7>(x, 0x00AA00AA);              // 3 and 0
  x = swap_bits32<2>(x, 0x0C0C0C0C);              // 2 and 1
  return swap_bits32<1>(x, 0x22222222);           // 1 and 0
}

// 1 bit, 8 strips: bit s of byte e becomes bit e/4 of byte e%4 of strip s's dword, so each of the
// four columns e%4 is an 8 x 8 bit matrix to transpose.
void bits_of_8(const u8* row, u8* strips, u64 strip_bytes, u32 r) {
  const __m256i by_column = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                             0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i zip = _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15,  //
                                       0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
  x = _mm256_shuffle_epi8(x, by_column);
  x = _mm256_permutevar8x32_epi32(x,
                                  _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));  // 8 bytes a column
  x = swap_bits64<7>(x, 0x00AA00AA00AA00AA);
  x = swap_bits64<14>(x, 0x0000CCCC0000CCCC);
  x = swap_bits64<28>(x, 0x00000000F0F0F0F0);
  x = _mm256_shuffle_epi8(x, zip);  // columns 0 and 1 side by side, 2 and 3 in the other lane
  const __m128i left = _mm256_castsi256_si128(x), right = _mm256_extracti128_si256(x, 1);
  alignas(32) u32 dwords[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(dwords), _mm_unpacklo_epi16(left, right));
  _mm_store_si128(reinterpret_cast<__m128i*>(dwords + 4), _mm_unpackhi_epi16(left, right));
  for (u32 s = 0; s < 8; ++s) {
    __builtin_memcpy(strips + s * strip_bytes + r * 4, dwords + s, 4);
  }
}

// 2 bits, one half of a block, one row: byte e holds two bits of each of four strips. Each column
// e%4 of 16 bytes is a 4 x 4 matrix of bit pairs to transpose; then dword s of lane v is what strip
// s wants for elements 16v..16v+15.
__m256i pairs_of_4(const u8* pairs) {
  const __m256i turn = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pairs));
  x = _mm256_shuffle_epi8(x, turn);
  x = swap_bits32<6>(x, 0x00CC00CC);
  x = swap_bits32<12>(x, 0x0000F0F0);
  return _mm256_shuffle_epi8(x, turn);
}

// The 2 bits of 8 rows' half blocks, from the first row's at `rows` on.
void transpose_pairs(const u8* rows, u64 stride, u8* strips, u64 strip_bytes) {
  __m256i low_lanes[4], high_lanes[4], dwords[4];
  for (u32 j = 0; j < 4; ++j) {
    const __m256i row = pairs_of_4(rows + j * stride);
    const __m256i other = pairs_of_4(rows + (j + 4) * stride);
    low_lanes[j] = _mm256_permute2x128_si256(row, other, 0x20);
    high_lanes[j] = _mm256_permute2x128_si256(row, other, 0x31);
  }
  transpose(low_lanes, dwords);
  for (u32 s = 0; s < 4; ++s) store(strips + s * strip_bytes, dwords[s]);
  transpose(high_lanes, dwords);
  for (u32 s = 0; s < 4; ++s) store(strips + s * strip_bytes + 64, dwords[s]);
}

// 8 rows' 4 bits of all strips of a block, from the first row's at `rows` on.
template <class Type, Plane kPlane>
void tile_nibbles(const u8* rows, u64 stride, u8* strips) {
  constexpr u64 kStripBytes = kTileOf<Type>.strip_bytes;
  if constexpr (kPlane.strips == 1) {  // a file's 16 bytes already pair elements e and e + 16
    for (u32 s = 0; s < kStripsOf<Type>; ++s) {
      transpose_bytes(rows + s * 16, stride, strips + s * kStripBytes, 64);
    }
  } else {
    constexpr u32 kApart = kPlane.strips / 2;  // the two strips of a byte
    for (u32 i = 0; i < kStripsOf<Type> / 2; ++i) {
      u8* low = strips + (i / kApart * kPlane.strips + i % kApart) * kStripBytes;
      transpose_nibbles(rows + i * 32, stride, low, low + kApart * kStripBytes);
    }
  }
}

// 8 rows of a plane, whose bytes of the first row begin at `rows`.
template <class Type, Plane kPlane>
void tile_half(const u8* rows, u64 stride, u8* strips, u32 half) {
  constexpr u64 kStripBytes = kTileOf<Type>.strip_bytes;
  if constexpr (kPlane.bits == 8) {
    transpose_bytes(rows, stride, strips + half * 32, 64);
    transpose_bytes(rows + 16, stride, strips + half * 32 + 256, 64);
  } else if constexpr (kPlane.bits == 4) {
    tile_nibbles<Type, kPlane>(rows, stride, strips + half * 32);
  } else if constexpr (kPlane.bits == 2) {
    for (u32 i = 0; i < kStripsOf<Type> / 4; ++i) {
      transpose_pairs(rows + i * 32, stride, strips + i * 4 * kStripBytes + half * 32, kStripBytes);
    }
  } else if constexpr (kPlane.strips == 1) {
    u8* at = strips + half * 32;
    for (u32 r = 0; r < 8; ++r) __builtin_memcpy(at + r * 4, rows + r * stride, 4);
    store(at, bits_of_1(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))));
  } else {
    for (u32 r = 0; r < 8; ++r) bits_of_8(rows + r * stride, strips, kStripBytes, half * 8 + r);
  }
}

template <class Type, u32 kIdx>
void tile_planes(const u8* rows, u64 stride, u8* strips) {
  constexpr Plane kPlane = Type::kPlanes[kIdx];
  for (u32 half = 0; half < 2; ++half) {
    tile_half<Type, kPlane>(rows + half * 8 * stride + kPlane.at, stride, strips, half);
  }
  if constexpr (kIdx + 1 < sizeof(Type::kPlanes) / sizeof(Plane)) {
    tile_planes<Type, kIdx + 1>(rows, stride, strips + 64 * kPlane.bits);
  }
}

template <class Type, u32 kIdx>
void tile_head(const u8* rows, u64 stride, u8* head) {
  constexpr HeadPart kPart = Type::kHead[kIdx];
  scatter(rows + kPart.at, stride, kPart.n_bytes / kPart.unit, kPart.unit, head);
  if constexpr (kIdx + 1 < sizeof(Type::kHead) / sizeof(HeadPart)) {
    tile_head<Type, kIdx + 1>(rows, stride, head + kPart.n_bytes * kTileRows);
  }
}

template <class Type>
void tile_block(const u8* rows, u64 stride, u8* block) {
  tile_head<Type, 0>(rows, stride, block);
  tile_planes<Type, 0>(rows, stride, block + kTileOf<Type>.strips);
}

void tile_f32(const u8* rows, u64 stride, u8* tile) {
  for (u32 half = 0; half < 2; ++half) {
    transpose_bytes(rows + half * 8 * stride, stride, tile + half * 32, 64);
  }
}

// A dword is two k of one row; they go to two vectors of 16 halves.
void tile_half_floats(const u8* rows, u64 stride, u8* tile) {
  __m256i in[4], dwords[2][4];
  for (u32 half = 0; half < 2; ++half) {
    for (u32 j = 0; j < 4; ++j) {
      const u8* at = rows + (half * 8 + j) * stride;
      in[j] = load_pair(at, at + 4 * stride);
    }
    transpose(in, dwords[half]);
  }
  const __m256i mask = _mm256_set1_epi32(0xFFFF);
  for (u32 i = 0; i < 4; ++i) {
    const __m256i even = _mm256_packus_epi32(_mm256_and_si256(dwords[0][i], mask),
                                             _mm256_and_si256(dwords[1][i], mask));
    const __m256i odd = _mm256_packus_epi32(_mm256_srli_epi32(dwords[0][i], 16),
                                            _mm256_srli_epi32(dwords[1][i], 16));
    store(tile + i * 64, _mm256_permute4x64_epi64(even, 0xD8));
    store(tile + i * 64 + 32, _mm256_permute4x64_epi64(odd, 0xD8));
  }
}

struct TypeSteps {
  u64 step_bytes;  // of a row, per call
  void (*step)(const u8* rows, u64 stride, u8* out);
};

TypeSteps steps_of(TensorType type) {
  TypeSteps steps{16, type == TensorType::f32 ? tile_f32 : tile_half_floats};
  QuantTypes::visit(type, [&]<class Type>(Type) {
    steps = {Type::kTraits.block_bytes, tile_block<Type>};
  });
  return steps;
}

}  // namespace

void tile_rows_avx2(const TileArgs& args) {
  if (args.n_rows < kTileRows) return tile_rows_generic(args);
  const TypeSteps steps = steps_of(args.type);
  const u64 stride = row_bytes(args.type, args.k);
  const u8* rows = static_cast<const u8*>(args.rows);
  u8* tile = static_cast<u8*>(args.tile);
  u64 at = 0;
  for (; at + steps.step_bytes <= stride; at += steps.step_bytes) {
    steps.step(rows + at, stride, tile + at * kTileRows);
  }
  // The last few k of the float types, element by element.
  const u64 unit = args.type == TensorType::f32 ? 4 : 2;
  for (; at < stride; at += unit) {
    scatter(rows + at, stride, 1, static_cast<u32>(unit), tile + at * kTileRows);
  }
}

}  // namespace tarn::kernels
