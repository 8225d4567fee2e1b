// runtime/plan/gpu_shape.h
//
// What a step takes beside its rows when a GPU computes it: partial results of attention and page
// tables there, and on the host's side the copies that the two exchange.
#pragma once

#include "kernels/attn/attn_gpu.h"
#include "kernels/matmul/matvec_gpu.h"
#include "platform/base/checked.h"
#include "runtime/model/model_spec.h"

namespace tarn::plan {

// Attention's partial results, of as many rows as one of its launches takes.
inline constexpr u32 kGpuAttnRowsMax = kernels::kGpuMatvecRowsMax;
constexpr u32 gpu_spans(u64 context_tokens) {
  return static_cast<u32>(ceil_div(context_tokens, kernels::kGpuSpanSlots));
}
constexpr u64 gpu_partials_bytes(const model::ModelSpec& spec, u64 context_tokens) {
  return kernels::gpu_attn_partial_bytes(kGpuAttnRowsMax, spec.n_heads, gpu_spans(context_tokens),
                                         spec.head_dim);
}
// Addresses of groups, for every session and cache layer.
constexpr Checked gpu_page_tables_bytes(const model::ModelSpec& spec, u64 sessions_max,
                                        u64 pages_max) {
  return Checked(sessions_max) * spec.n_cache_layers * pages_max * sizeof(u64);
}
// Token, position, visible slots and session of a row, and whether its logits are wanted.
inline constexpr u64 kGpuRowMirrorBytes = 5 * sizeof(u32);

}  // namespace tarn::plan
