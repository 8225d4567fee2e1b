// 256 elements: d f16; for each 32 a scale of 6 bits, of which 32 is 0; q 4 bits, with iq4_nl's
// table.
#pragma once

#include "kernels/quant/types/iq4_nl.h"

namespace tarn::kernels {

struct IQ4XS {
  static constexpr TypeTraits kTraits = {TensorType::iq4_xs, "iq4_xs", 256, 136};
  static constexpr Term kTerm = Term::scaled;
  static constexpr HeadPart kHead[] = {{.at = 0, .n_bytes = 2, .unit = 2},
                                       {.at = 2, .n_bytes = 6, .unit = 1}};
  static constexpr Plane kPlanes[] = {{.bits = 4, .strips = 1, .at = 8, .shift = 0}};
  static constexpr auto& kTable = IQ4NL::kTable;
  static constexpr i32 kLeast = IQ4NL::kLeast, kMost = IQ4NL::kMost;
  static constexpr u32 kScales = 8;
  static constexpr i32 kScaleLeast = -32, kScaleMost = 31;

  // Bits 2i, 2i + 1 of byte j, of the first two, are the upper ones of scale 4j + i; the nibbles of
  // the last four bytes are the lower ones, in order.
  template <class V>
  static void read_scales(const u8* bytes, u8* scales, u8*) {
    using Row = typename V::Row;
    const auto low4 = Row::set(15), bits45 = Row::set(48), zero = Row::set(32);
    for (u32 j = 0; j < 2; ++j, scales += 4 * Row::kRows) {
      const auto upper = Row::load(bytes + j * Row::kRows);
      const auto first = Row::load(bytes + (2 + 2 * j) * Row::kRows);
      const auto second = Row::load(bytes + (3 + 2 * j) * Row::kRows);
      const auto put = [&](u32 i, auto low, auto high) {
        Row::store(scales + i * Row::kRows,
                   Row::minus(Row::merge(Row::both(low, low4), high, bits45), zero));
      };
      put(0, first, Row::template right<-4>(upper));
      put(1, Row::template right<4>(first), Row::template right<-2>(upper));
      put(2, second, upper);
      put(3, Row::template right<4>(second), Row::template right<2>(upper));
    }
  }
  template <class Int>
  static void write_scales(const Int* scales, const Int*, u8* bytes) {
    for (u32 i = 0; i < 6; ++i) bytes[i] = 0;
    for (u32 i = 0; i < kScales; ++i) {
      const u32 scale = static_cast<u32>(scales[i] + 32);
      bytes[i / 4] |= static_cast<u8>((scale >> 4) << (i % 4 * 2));
      bytes[2 + i / 2] |= static_cast<u8>((scale & 15) << (i % 2 * 4));
    }
  }
};

}  // namespace tarn::kernels
