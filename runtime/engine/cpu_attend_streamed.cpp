// Attention over KV that is not all in memory: each layer window by window, the softmax state
// carried from one to the next (kernels/attn/attn.h), with the bits of a pass over all of it.
#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/engine/cpu_backend.h"

namespace tarn::engine {

void CpuBackend::attend_streamed(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  const u64 row_elems = u64{args_.spec->n_heads} * args_.spec->head_dim;
  for (const step::Run& run : batch.runs) {
    if (run.selects) {
      attend_fetched(run, cache_layer, q, out);
      continue;
    }
    const u32 last_row = run.row_begin + run.n_rows - 1;
    args_.selector->note_query(run.session, cache_layer, q.data + last_row * q.stride);
    const u32 n_slots = batch.visible[last_row];
    const u32 n_groups = static_cast<u32>(ceil_div(n_slots, args_.page_tokens));
    for (u32 begin = 0; begin < n_groups && !is_abandoned();) {
      const u32 n = args_.kv_stream->pin(run, cache_layer, begin, n_groups);
      if (n == 0) break;  // nobody will look at these rows
      attend_window(batch, run, cache_layer, begin, begin + n, q, out);
      args_.kv_stream->unpin(run, cache_layer, begin, begin + n);
      begin += n;
    }
    if (!args_.kv_stream->failed(run.session)) continue;
    for (u32 row = run.row_begin; row < run.row_begin + run.n_rows; ++row) {
      std::fill_n(out.data + row * out.stride, row_elems, 0.0f);
    }
  }
}

void CpuBackend::attend_fetched(const step::Run& run, u32 cache_layer, Rows q, Rows out) {
  const u64 row_elems = u64{args_.spec->n_heads} * args_.spec->head_dim;
  f32* result = out.data + run.row_begin * out.stride;
  Result<void> attended{};
  args_.selector->note_query(run.session, cache_layer, q.data + run.row_begin * q.stride);
  if (!args_.kv_stream->failed(run.session)) {
    attended =
        args_.selector->attend_fetched({.session = run.session,
                                        .sequence = run.sequence,
                                        .cache_layer = cache_layer,
                                        .q = q.data + run.row_begin * q.stride,
                                        .out = result,
                                        .attention = args_.attention,
                                        .attention_stride_bytes = args_.attention_stride_bytes});
  }
  if (!attended) args_.kv_stream->note_failure(run.session, attended.error());
  if (args_.kv_stream->failed(run.session)) std::fill_n(result, row_elems, 0.0f);
}

void CpuBackend::attend_window(const step::Batch& batch, const step::Run& run, u32 cache_layer,
                               u32 group_begin, u32 group_end, Rows q, Rows out) {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 n_blocks = static_cast<u32>(ceil_div(run.n_rows, kernels::kAttnRowsMax));
  args_.workers->run(n_blocks * n_kv_heads, looking(), [&](u32 task_idx, u32 worker_idx) {
    if (skips_task(worker_idx)) return;
    const u32 kv_head = task_idx % n_kv_heads;
    const u32 block = n_blocks - 1 - task_idx / n_kv_heads;
    kernels::AttnArgs attn = attn_args(batch, run, kv_head, block, q, out, worker_idx);
    attn.slot_begin = group_begin * args_.page_tokens;
    attn.slot_end = group_end * args_.page_tokens;
    const u32 visible_max = attn.visible[attn.n_rows - 1];  // positions ascend
    if (attn.slot_begin >= visible_max) return;             // it had its last window
    auto* memory = static_cast<std::byte*>(attn.scratch);
    auto* pages = reinterpret_cast<const u8**>(memory + args_.page_table_offset_bytes);
    run.sequence->pages(cache_layer, kv_head, group_begin, group_end, {pages, args_.pages_max});
    attn.pages = pages;
    attn.state = reinterpret_cast<f32*>(args_.attn_states + (u64{block} * n_kv_heads + kv_head) *
                                                                args_.attn_state_stride_bytes);
    attend_parts(attn, worker_idx);
  });
}

}  // namespace tarn::engine
