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

// The head of a tile's block: every row's d, and what the type has of dmin and scale bytes.
void tile_head(TensorType type, const u8* source, u32 row, u8* block) {
  u32 d_at = 0, dmin_at = 0, scales_at = 0, n_scales = 0;
  const TileBlock* at = &kTileQ8_0;
  if (type == TensorType::q4_k || type == TensorType::q5_k) {
    dmin_at = kFileQ4K.dmin, scales_at = kFileQ4K.scales, n_scales = 12;
    at = &kTileQ4K;  // q5_k's head is the same
  } else if (type == TensorType::q6_k) {
    d_at = kFileQ6K.d, scales_at = kFileQ6K.scales, n_scales = 16;
    at = &kTileQ6K;
  }
  std::memcpy(block + u64{row} * 2, source + d_at, 2);
  if (dmin_at != 0) std::memcpy(block + at->dmin + u64{row} * 2, source + dmin_at, 2);
  for (u32 i = 0; i < n_scales; ++i)
    block[at->scales + i * kTileRows + row] = source[scales_at + i];
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
      const u8* source = rows + r * source_bytes + b * traits.block_bytes;
      tile_head(args.type, source, r, block);
      for (u32 s = 0; s < traits.block_elems / kStripElems; ++s) {
        strip_codes_to_tile(args.type, strip_from_file(args.type, source, s), block, r, s);
      }
    }
  }
}

}  // namespace tarn::kernels
