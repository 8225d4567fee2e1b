// The portable body of tile_rows, and the one to read first.
#include <cstring>

#include "kernels/quant/dequant.h"
#include "kernels/quant/strip.h"

namespace tarn::kernels {
namespace {

void tile_elements(const TileArgs& args, u64 element_bytes) {
  const u8* rows = static_cast<const u8*>(args.rows);
  u8* tile = static_cast<u8*>(args.tile);
  for (u64 r = 0; r < args.n_rows; ++r) {
    for (u64 i = 0; i < args.k; ++i) {
      std::memcpy(tile + (i * kTileRows + r) * element_bytes,
                  rows + (r * args.k + i) * element_bytes, element_bytes);
    }
  }
}

}  // namespace

void tile_rows_generic(const TileArgs& args) {
  const TypeTraits& traits = type_traits(args.type);
  u8* block = static_cast<u8*>(args.tile);
  std::memset(block, 0, tiled_bytes(args.type, kTileRows, args.k));
  if (traits.block_elems == 1) return tile_elements(args, traits.block_bytes);

  const u64 source_bytes = row_bytes(args.type, args.k);
  const u8* rows = static_cast<const u8*>(args.rows);
  const u64 n_blocks = args.k / traits.block_elems;
  for (u64 b = 0; b < n_blocks; ++b, block += u64{traits.block_bytes} * kTileRows) {
    for (u32 r = 0; r < args.n_rows; ++r) {
      block_to_tile(args.type, rows + r * source_bytes + b * traits.block_bytes, block, r);
    }
  }
}

}  // namespace tarn::kernels
