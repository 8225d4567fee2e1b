// Takes tiles apart in vectors, for the files of an instruction set. V is a class of that file:
//
//   Bytes, kBytes              a register of bytes, and how many
//   kRows                      16
//   load, store, set           plain
//   both(a, b)                 a & b
//   merge(a, b, mask)          a | (b & mask)
//   flip(a, b)                 a ^ b
//   minus(a, b)                a - b, byte by byte
//   right<n>(a)                a >> n, or a << -n, of 16 bits: what crosses a byte's border must be
//                              masked away
//   pick(table, index)         of each 16 bytes: byte i is table's byte index[i], which is 0..15
//   table(values)              16 bytes, again and again
//   Row                        such a class with 16 bytes: one byte of each row
//   codes(at)                  not static: of 64 bytes at `at` those that belong to V's rows
//   f16(at), e8m0(at)          not static: the scales of V's rows as f32
//
// strip.cpp reads scales with such a class whose kRows and kBytes are 1.
#pragma once

#include "kernels/quant/types.h"

namespace tarn::kernels {

// codes[g] |= plane's bits of group g, at kShift.
template <u32 kShift, class V>
[[gnu::always_inline]] inline void merge_bit(typename V::Bytes high,
                                             typename V::Bytes (&codes)[kStripGroups]) {
  constexpr i32 kUp = -static_cast<i32>(kShift);
  const auto mask = V::set(static_cast<u8>(1u << kShift));
  codes[0] = V::merge(codes[0], V::template right<kUp>(high), mask);
  codes[1] = V::merge(codes[1], V::template right<kUp + 1>(high), mask);
  codes[2] = V::merge(codes[2], V::template right<kUp + 2>(high), mask);
  codes[3] = V::merge(codes[3], V::template right<kUp + 3>(high), mask);
  codes[4] = V::merge(codes[4], V::template right<kUp + 4>(high), mask);
  codes[5] = V::merge(codes[5], V::template right<kUp + 5>(high), mask);
  codes[6] = V::merge(codes[6], V::template right<kUp + 6>(high), mask);
  codes[7] = V::merge(codes[7], V::template right<kUp + 7>(high), mask);
}

template <u32 kShift, class V>
[[gnu::always_inline]] inline void merge_pairs(typename V::Bytes high, typename V::Bytes* codes) {
  constexpr i32 kUp = -static_cast<i32>(kShift);
  const auto mask = V::set(static_cast<u8>(3u << kShift));
  codes[0] = V::merge(codes[0], V::template right<kUp>(high), mask);
  codes[1] = V::merge(codes[1], V::template right<kUp + 2>(high), mask);
  codes[2] = V::merge(codes[2], V::template right<kUp + 4>(high), mask);
  codes[3] = V::merge(codes[3], V::template right<kUp + 6>(high), mask);
}

template <class V>
[[gnu::always_inline]] inline void first_pairs(typename V::Bytes pairs, typename V::Bytes* codes) {
  const auto mask = V::set(3);
  codes[0] = V::both(pairs, mask);
  codes[1] = V::both(V::template right<2>(pairs), mask);
  codes[2] = V::both(V::template right<4>(pairs), mask);
  codes[3] = V::both(V::template right<6>(pairs), mask);
}

// A plane of kPlanes, whose bytes of this strip begin at `bytes`; then the planes behind it.
template <class Type, u32 kPlane, class V>
[[gnu::always_inline]] inline void unpack_planes(const V& v, const u8* bytes,
                                                 typename V::Bytes (&codes)[kStripGroups]) {
  constexpr Plane kThis = Type::kPlanes[kPlane];
  if constexpr (kThis.bits == 8) {
    for (u32 g = 0; g < kStripGroups; ++g) codes[g] = v.codes(bytes + g * 64);
  } else if constexpr (kThis.bits == 4) {
    const auto mask = V::set(15);
    const auto a = v.codes(bytes), b = v.codes(bytes + 64);
    const auto c = v.codes(bytes + 128), d = v.codes(bytes + 192);
    codes[0] = V::both(a, mask), codes[4] = V::both(V::template right<4>(a), mask);
    codes[1] = V::both(b, mask), codes[5] = V::both(V::template right<4>(b), mask);
    codes[2] = V::both(c, mask), codes[6] = V::both(V::template right<4>(c), mask);
    codes[3] = V::both(d, mask), codes[7] = V::both(V::template right<4>(d), mask);
  } else if constexpr (kThis.bits == 2) {
    const auto low = v.codes(bytes), high = v.codes(bytes + 64);
    if constexpr (kThis.shift == 0) {
      first_pairs<V>(low, codes);
      first_pairs<V>(high, codes + 4);
    } else {
      merge_pairs<kThis.shift, V>(low, codes);
      merge_pairs<kThis.shift, V>(high, codes + 4);
    }
  } else {
    merge_bit<kThis.shift, V>(v.codes(bytes), codes);
  }
  constexpr u32 kPlanes = sizeof(Type::kPlanes) / sizeof(Plane);
  if constexpr (kPlane + 1 < kPlanes) {
    unpack_planes<Type, kPlane + 1, V>(v, bytes + 64 * kThis.bits, codes);
  }
}

// The weights of a strip, 4 k of each row to a register: as i8 if kSigned, else as unsigned bytes,
// weight - kLeast.
template <class Type, bool kSigned, class V>
[[gnu::always_inline]] inline void unpack(const V& v, const u8* strip,
                                          typename V::Bytes (&codes)[kStripGroups]) {
  constexpr bool kWhole = Type::kPlanes[0].bits == 8;
  static_assert(!kSigned || kWhole || HasTable<Type>);
  unpack_planes<Type, 0, V>(v, strip, codes);
  if constexpr (HasTable<Type>) {
    u8 values[16];
    for (u32 i = 0; i < 16; ++i) {
      values[i] = static_cast<u8>(Type::kTable[i] - (kSigned ? 0 : Type::kLeast));
    }
    const auto table = V::table(values);
    for (auto& code : codes) code = V::pick(table, code);
  } else if constexpr (kWhole && !kSigned) {
    for (auto& code : codes) code = V::flip(code, V::set(0x80));
  }
}

// d of a block's rows. A dmin is always an f16.
template <class Type, class V>
auto unpack_d(const V& v, const u8* block) {
  if constexpr (Type::kHead[0].n_bytes == 1) {
    return v.e8m0(block);
  } else {
    return v.f16(block);
  }
}

// Whether the scales' bytes have to be taken apart.
template <class Type>
concept ReadsScales = requires {
  &Type::template read_scales<void>;
};

// The head of 16 rows' blocks with several strips, taken apart: a byte of each row for each scale.
template <class Type>
struct Head {
  static constexpr u32 kScales = Type::kScales;
  static constexpr u32 kMinima = HasMinimum<Type> ? kScales : 1;
  alignas(64) u8 scales[kScales][kTileRows];
  alignas(64) u8 minima[kMinima][kTileRows];

  template <class V>
  void read(const u8* block) {
    Type::template read_scales<V>(block + kTileOf<Type>.scales, scales[0], minima[0]);
  }
};

}  // namespace tarn::kernels
