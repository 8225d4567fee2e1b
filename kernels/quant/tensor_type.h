// The tensor types of GGUF that this build computes with, their block geometry in the file, and the
// one layout that weights have in memory.
//
// Tiled layout ("tile16"). A matrix [n_rows, k] of any type is cut into tiles of 16 rows. A tile
// has exactly 16 times the bytes of one row of the file, so a tensor grows only by the padding of
// its last tile (rows of zeros). Inside a tile the rows are interleaved, so that lane r of a vector
// is row r. So a product needs no horizontal sum, 1 and 512 activation rows have the same
// arithmetic, and a sum runs over k in the same order on every ISA. f32, f16 and bf16 lie as
// [k][16] elements; a quantised type's blocks lie as type_parts.h and its file in types/ say.
#pragma once

#include "kernels/quant/types.h"

namespace tarn::kernels {

template <class... Types>
constexpr auto traits_of(TypeList<Types...>) {
  struct {
    TypeTraits list[3 + sizeof...(Types)];
  } out = {{{TensorType::f32, "f32", 1, 4},
            {TensorType::f16, "f16", 1, 2},
            {TensorType::bf16, "bf16", 1, 2},
            Types::kTraits...}};
  return out;
}
inline constexpr auto kTypeTable = traits_of(QuantTypes());
inline constexpr auto& kTypeTraits = kTypeTable.list;

// nullptr for an id that this build does not know.
const TypeTraits* type_traits(u32 gguf_type_id);
const TypeTraits& type_traits(TensorType type);

// Bytes of one row of `k` elements; k must be a multiple of block_elems (asserted).
u64 row_bytes(TensorType type, u64 k);
// Bytes of [n_rows, k] in the tiled layout.
u64 tiled_bytes(TensorType type, u64 n_rows, u64 k);

}  // namespace tarn::kernels
