// runtime/plan/gpu_shape.h
//
// What a step takes beside its rows when a GPU computes it: partial results of attention and page
// tables there, and on the host's side the copies that the two exchange.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attn/attn_gpu.h"
#include "kernels/attn/gather_slots_gpu.h"
#include "kernels/matmul/matvec_gpu.h"
#include "kernels/pq/pq_gpu.h"
#include "kernels/sample/sample_gpu.h"
#include "platform/base/checked.h"
#include "runtime/model/model_spec.h"
#include "runtime/plan/step_memory.h"

namespace tarn::plan {

// Attention's partial results, of as many rows as one of its launches takes.
inline constexpr u32 kGpuAttnRowsMax = kernels::kGpuMatvecRowsMax;
constexpr u32 gpu_spans(u64 context_tokens) {
  return static_cast<u32>(ceil_div(context_tokens, kernels::kGpuSpanSlots));
}
// Slots that one launch attends to at most: all, or where they come in chunks one of those.
constexpr u64 gpu_attended_slots(u64 context_tokens, bool in_chunks) {
  return in_chunks ? std::min<u64>(context_tokens, kernels::kGpuMergeSlots) : context_tokens;
}
constexpr u64 gpu_partials_bytes(const model::ModelSpec& spec, u64 context_tokens) {
  return kernels::gpu_attn_partial_bytes(kGpuAttnRowsMax, spec.n_heads, gpu_spans(context_tokens),
                                         spec.head_dim);
}
// Addresses of groups, in tables for every cache layer: of every session, and of every row's
// gathered slots.
constexpr Checked gpu_page_tables_bytes(const model::ModelSpec& spec, u64 n_tables, u64 pages_max) {
  return Checked(n_tables) * spec.n_cache_layers * pages_max * sizeof(u64);
}
// What a greedy step brings of its rows of logits.
constexpr u64 gpu_summaries_bytes(const model::ModelSpec& spec, u64 logit_rows) {
  return logit_rows * kernels::gpu_sample_chunks(spec.n_vocab) * sizeof(kernels::GpuLogitsSummary);
}
// Kernels read whole buckets of rows, so a step's buffers have whole buckets.
constexpr u32 gpu_step_rows(u32 rows_max) {
  return static_cast<u32>(align_up(rows_max, kernels::kGpuMatvecRowsMax));
}
// Of a row on the host: token, position, visible slots, row of logits; its run; its embedding where
// the host reads it from disk. The state that is sent comes on top.
constexpr u64 gpu_mirror_row_bytes(const model::ModelSpec& spec) {
  const u64 embedding_bytes = spec.embedding_on_disk ? u64{spec.d_model} * sizeof(f32) : 0;
  return 4 * sizeof(u32) + sizeof(step::Run) + embedding_bytes;
}

// What a row that selects has to know: of its index, and of the slots that it reads. Zeros for one
// that does not.
struct GpuChoice {
  kernels::GpuPqNewRows rows;
  kernels::GpuSegments segments;
};

// Where a step's state lies in the piece that goes to the device in one copy, in bytes: how many
// rows there are and of how many the best is taken, then an element of each array a row. So many
// rows that a decode step and its graph, which has room for a bucket's, agree on the places. Where
// rows may select, of at most n_selecting, attention reads other tables and sees as many slots as
// were gathered; else they are the sessions' and what is visible.
struct GpuStateShape {
  u32 rows = 0;
  u64 n_rows = 0, tokens = 0, slots = 0, visible = 0, logit_rows = 0, sessions = 0;  // u32
  u64 tables = 0, attended = 0;                                                      // u32
  u64 choices = 0;       // GpuChoice, of min(rows, n_selecting) rows
  u64 cos = 0, sin = 0;  // n_rot / 2 f32
  u64 bytes = 0;
};
constexpr GpuStateShape gpu_state_shape(const model::ModelSpec& spec, u32 n_rows, u32 n_selecting) {
  GpuStateShape shape;
  shape.rows = n_rows < kernels::kGpuMatvecRowsMax ? std::bit_ceil(n_rows) : gpu_step_rows(n_rows);
  shape.bytes = 4 * sizeof(u32);
  const auto place = [&](u64& offset, u64 row_bytes) {
    offset = shape.bytes;
    shape.bytes += shape.rows * row_bytes;
  };
  place(shape.tokens, sizeof(u32));
  place(shape.slots, sizeof(u32));
  place(shape.visible, sizeof(u32));
  place(shape.logit_rows, sizeof(u32));
  place(shape.sessions, sizeof(u32));
  shape.attended = shape.visible;
  shape.tables = shape.sessions;
  if (n_selecting > 0) {
    place(shape.tables, sizeof(u32));
    place(shape.attended, sizeof(u32));
    shape.choices = shape.bytes;
    shape.bytes += std::min(shape.rows, n_selecting) * sizeof(GpuChoice);
  }
  place(shape.cos, u64{spec.n_rot} / 2 * sizeof(f32));
  place(shape.sin, u64{spec.n_rot} / 2 * sizeof(f32));
  return shape;
}
// On the device it begins where the step's shape has the cosines and takes less than what follows
// there up to the runs' end, or where rows may select in the scratch of selection; behind it lie
// the counts 0, 1, 2, ..., rows_max.
constexpr u64 gpu_state_bytes(const model::ModelSpec& spec, u32 step_rows, u32 n_selecting) {
  return gpu_state_shape(spec, step_rows, n_selecting).bytes + (u64{step_rows} + 1) * sizeof(u32);
}
static_assert(kernels::kGpuMatvecRowsMax * (sizeof(step::Run) - 2 * sizeof(u32)) >=
              5 * sizeof(u32));

}  // namespace tarn::plan
