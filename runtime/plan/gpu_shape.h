// runtime/plan/gpu_shape.h
//
// What a step takes beside its rows when a GPU computes it: partial results of attention and page
// tables there, and on the host's side the copies that the two exchange.
#pragma once

#include "kernels/attn/attn_gpu.h"
#include "kernels/matmul/matvec_gpu.h"
#include "kernels/sample/sample_gpu.h"
#include "platform/base/checked.h"
#include "runtime/model/model_spec.h"
#include "runtime/plan/step_shape.h"

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
// What a greedy step brings of its rows of logits.
constexpr u64 gpu_summaries_bytes(const model::ModelSpec& spec, u64 logit_rows) {
  return logit_rows * kernels::gpu_sample_chunks(spec.n_vocab) * sizeof(kernels::GpuLogitsSummary);
}
// Kernels read whole buckets of rows, so a step's buffers have whole buckets.
constexpr u32 gpu_step_rows(u32 rows_max) {
  return static_cast<u32>(align_up(rows_max, kernels::kGpuMatvecRowsMax));
}
// Of a row on the host: token, position, visible slots, session, wanted row, a count; its run; cos
// and sin of its position; its embedding where the host reads it from disk.
constexpr u64 gpu_mirror_row_bytes(const model::ModelSpec& spec) {
  const u64 embedding_bytes = spec.embedding_on_disk ? u64{spec.d_model} * sizeof(f32) : 0;
  return 6 * sizeof(u32) + kStepRunBytes + u64{spec.n_rot} * sizeof(f32) + embedding_bytes;
}
// On the device, in the piece `runs` of the step's shape, which is the host's otherwise: the
// session of each row, then the counts 0, 1, 2, ..., rows_max and the step's own two.
constexpr u64 gpu_counts_offset_bytes(u32 step_rows) { return u64{step_rows} * sizeof(u32); }
static_assert(sizeof(u32) * 3 <= kStepRunBytes);

}  // namespace tarn::plan
