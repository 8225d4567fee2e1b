// Rows of any tensor type as a file holds them: random codes and scales, with finite f16 scales of
// sensible size; or every weight at one end of its range, which is where narrow integers overflow,
// and a block's small scales at one end of theirs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "kernels/common/half.h"
#include "kernels/quant/dequant.h"
#include "kernels/quant/strip.h"
#include "tests/support/seed.h"

namespace tarn::kernels::test {

enum class Codes { random, largest, smallest };

struct FreeBytes {
  void operator()(u8* bytes) const { std::free(bytes); }
};
using AlignedBytes = std::unique_ptr<u8[], FreeBytes>;

inline AlignedBytes aligned_bytes(u64 n_bytes) {
  return AlignedBytes(static_cast<u8*>(std::aligned_alloc(64, (n_bytes + 127) / 64 * 64)));
}

inline void put_f16(u8* at, f32 value) {
  const u16 half = f32_to_f16(value);
  std::memcpy(at, &half, sizeof half);
}

// The byte whose codes all mean the type's largest weight, or its smallest.
template <class Type>
u8 byte_of_codes(Codes codes) {
  const bool is_largest = codes == Codes::largest;
  if constexpr (HasTable<Type>) {
    const i32 weight = is_largest ? Type::kMost : Type::kLeast;
    const auto* at = std::find(std::begin(Type::kTable), std::end(Type::kTable), weight);
    return static_cast<u8>((at - std::begin(Type::kTable)) * 0x11);
  } else if constexpr (Type::kPlanes[0].bits == 8) {
    return is_largest ? 0x7F : 0x80;
  }
  return is_largest ? 0xFF : 0x00;
}

template <class Type>
void put_ends(tarn::test::Random& random, Codes codes, u8* block) {
  std::fill_n(block, Type::kTraits.block_bytes, byte_of_codes<Type>(codes));
  if constexpr (HasScales<Type>) {
    constexpr u8 kEnds[] = {0x00, 0xFF, 0x80, 0x7F};
    const HeadPart& part = Type::kHead[std::size(Type::kHead) - 1];
    std::fill_n(block + part.at, part.n_bytes, kEnds[random.below(std::size(kEnds))]);
  }
}

// Finite scales over a block's random bits: values of the order of 0.1.
template <class Type>
void put_scales(tarn::test::Random& random, u8* block) {
  const f32 unit = HasScales<Type> ? 0.003f : 0.1f;
  const f32 d = unit / static_cast<f32>(std::max(Type::kMost, -Type::kLeast));
  if (Type::kHead[0].n_bytes == 1) {
    block[Type::kHead[0].at] = static_cast<u8>(116 + random.below(8));
  } else {
    put_f16(block + Type::kHead[0].at, random.uniform(-d, d));
  }
  if constexpr (HasMinimum<Type>) {
    put_f16(block + Type::kHead[1].at, random.uniform(-unit, unit));
  }
}

// [n_rows, k] in the file's layout.
inline std::vector<u8> random_rows(tarn::test::Random& random, TensorType type, u64 n_rows, u64 k,
                                   Codes codes = Codes::random) {
  std::vector<u8> rows(n_rows * row_bytes(type, k));
  const TypeTraits& traits = type_traits(type);
  for (u8& byte : rows) byte = static_cast<u8>(random.next());
  for (u64 at = 0; at < rows.size(); at += traits.block_bytes) {
    u8* block = rows.data() + at;
    const f32 value = random.uniform(-1.0f, 1.0f);
    switch (type) {
      case TensorType::f32:
        std::memcpy(block, &value, sizeof value);
        break;
      case TensorType::f16:
        put_f16(block, value);
        break;
      case TensorType::bf16: {
        const u16 half = f32_to_bf16(value);
        std::memcpy(block, &half, sizeof half);
        break;
      }
      default:
        QuantTypes::visit(type, [&]<class Type>(Type) {
          if (codes != Codes::random) put_ends<Type>(random, codes, block);
          put_scales<Type>(random, block);
        });
    }
  }
  return rows;
}

// The same rows in the tiled layout.
inline AlignedBytes tile_matrix(TileFn tile_rows, TensorType type, const std::vector<u8>& rows,
                                u64 n_rows, u64 k) {
  AlignedBytes tiled = aligned_bytes(tiled_bytes(type, n_rows, k));
  for (u64 r = 0; r < n_rows; r += kTileRows) {
    const u32 n = static_cast<u32>(n_rows - r < kTileRows ? n_rows - r : kTileRows);
    tile_rows({.type = type,
               .rows = rows.data() + r * row_bytes(type, k),
               .n_rows = n,
               .k = k,
               .tile = tiled.get() + r * row_bytes(type, k)});
  }
  return tiled;
}

}  // namespace tarn::kernels::test
