// The scratch of attention on the CPU. A worker has its own tiles and table of pages. A softmax
// state is carried between the pieces of a long part, and between the parts of a layer whose KV
// lies over a disk.
#pragma once

#include "kernels/attn/attn.h"
#include "runtime/arena/carver.h"
#include "runtime/model/model_spec.h"

namespace tarn::exec {

// A task goes over this many slots, whole pages, between two looks at whether the step is still
// wanted: 16 rows and 4 heads of 128 take 6 ms of a core with AVX-512, 45 ms of one without AVX2.
inline constexpr u32 kAttnPieceSlots = 8192;

struct AttentionSizes {
  u32 n_workers = 1;
  u32 carried_rows = 0;  // whose state is kept between a layer's parts; 0: a layer is one
  u32 page_tokens = 0;
  u32 pages_max = 0;  // of one layer of one session
};

struct AttentionMemory {
  std::span<std::byte> tiles;     // [n_workers, n]
  std::span<const u8*> pages;     // [n_workers, pages_max, rounded up]
  std::span<f32> states;          // [n_workers, n]; empty: a part is no longer than a piece
  std::span<f32> carried_states;  // [blocks of rows, n_kv_heads, n]; empty: a layer is one part
  u64 n_carried_states = 0;

  static AttentionMemory carve(Carver& carver, const model::ModelSpec& spec,
                               const AttentionSizes& sizes) {
    const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
    const auto whole = [](u64 n_bytes) { return align_up(n_bytes, Carver::kAlignment); };
    const u64 tile_bytes =
        whole(kernels::attn_scratch_bytes(sizes.page_tokens, spec.head_dim, n_group_heads));
    const u64 table_bytes = whole(sizes.pages_max * sizeof(u8*));
    const u64 state_bytes =
        whole(kernels::attn_state_bytes(spec.head_dim, kernels::kAttnRowsMax * n_group_heads));
    const bool is_long = sizes.pages_max > kAttnPieceSlots / sizes.page_tokens;
    const u64 n_carried_states =
        ceil_div(sizes.carried_rows, kernels::kAttnRowsMax) * spec.n_kv_heads;
    return {.tiles = carver.rows<std::byte>("tiles", sizes.n_workers, tile_bytes),
            .pages = carver.rows<const u8*>("pages", sizes.n_workers, table_bytes / sizeof(u8*)),
            .states =
                carver.rows<f32>("state", is_long ? sizes.n_workers : 0, state_bytes / sizeof(f32)),
            .carried_states =
                carver.rows<f32>("carried state", n_carried_states, state_bytes / sizeof(f32)),
            .n_carried_states = n_carried_states};
  }
};

}  // namespace tarn::exec
