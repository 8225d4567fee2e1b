// Device code: finds the slots of a row. A slot is K then V of one head and token.
#pragma once

#include "kernels/attn/attn_gpu.h"
#include "kernels/common/cta.h"

namespace tarn::kernels::TARN_GPU {

constexpr u32 kKvBlock = 32;  // elements of a block of q8_0 or q4_0

constexpr u32 kv_block_bytes(KvType type) {
  return 2 + (type == KvType::q8_0 ? kKvBlock : kKvBlock / 2);
}

constexpr u32 vector_bytes(KvType type, u32 head_dim) {
  return type == KvType::f16 ? head_dim * 2 : head_dim / kKvBlock * kv_block_bytes(type);
}

// A warp's piece in a launch over vectors: 32 elements of K or V of one head of a row.
struct KvPiece {
  u32 kv_head, piece, i;  // i: of the lane in the vector
  bool is_k, is_there;    // is_there is a whole warp's
};
TARN_DEVICE KvPiece kv_piece(Cta& cta, const GpuPages& pages, u32 n_threads) {
  const u32 pieces = (pages.head_dim + kKvBlock - 1) / kKvBlock;  // of a vector
  const u32 at = cta.block() * (n_threads / kWarpLanes) + cta.warp();
  const u32 vector = at / pieces, piece = at % pieces;
  return {.kv_head = vector / 2,
          .piece = piece,
          .i = piece * kKvBlock + cta.lane(),
          .is_k = vector % 2 == 0,
          .is_there = vector < 2 * pages.n_kv_heads};
}
// CTAs of such a launch for each row.
inline u32 kv_ctas(const GpuPages& pages, u32 n_threads) {
  const u32 pieces = (pages.head_dim + kKvBlock - 1) / kKvBlock, n_warps = n_threads / kWarpLanes;
  return (2 * pages.n_kv_heads * pieces + n_warps - 1) / n_warps;
}

TARN_DEVICE u8* slot_address(const GpuPages& pages, u32 row, u32 kv_head, u32 slot) {
  u8* const* groups = pages.groups + pages.tables[row] * pages.table_stride;
  return groups[u64{slot / pages.page_tokens} * pages.group_stride] + kv_head * pages.page_stride +
         u64{slot % pages.page_tokens} * 2 * vector_bytes(pages.type, pages.head_dim);
}

}  // namespace tarn::kernels::TARN_GPU
