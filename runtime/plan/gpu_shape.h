// runtime/plan/gpu_shape.h
//
// What a step takes beside its rows when a GPU computes it: partial results of attention and page
// tables there, and on the host's side the copies that the two exchange.
#pragma once

#include "platform/base/checked.h"
#include "runtime/model/model_spec.h"

namespace tarn::plan {

inline constexpr u32 kGpuSpanTokens = 256;   // attention is split over spans of so many slots
inline constexpr u32 kGpuDecodeRowsMax = 8;  // rows of a step whose attention is split

// Of each row, head and span: the span's result before the merge, its largest score, its sum.
constexpr Checked gpu_partials_bytes(const model::ModelSpec& spec, u64 context_tokens) {
  return Checked(kGpuDecodeRowsMax) * spec.n_heads * ceil_div(context_tokens, kGpuSpanTokens) *
         (Checked(spec.head_dim) + 2) * sizeof(f32);
}
// Addresses of pages, for every session and cache layer.
constexpr Checked gpu_page_tables_bytes(const model::ModelSpec& spec, u64 sessions_max,
                                        u64 pages_max) {
  return Checked(sessions_max) * spec.n_cache_layers * pages_max * sizeof(u64);
}
// Token, position, visible slots and session of a row, and whether its logits are wanted.
inline constexpr u64 kGpuRowMirrorBytes = 5 * sizeof(u32);

}  // namespace tarn::plan
