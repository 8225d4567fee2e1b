#include "runtime/engine/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "kernels/matmul/matmul_tuning.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::engine {
namespace {

constexpr u32 kRowsPerTask = 16;

u32 count_tiles(u64 n_out) { return static_cast<u32>(ceil_div(n_out, kernels::kTileRows)); }

}  // namespace

template <class Fn>
void CpuBackend::for_rows(u32 n, u32 rows_per_task, Fn&& fn) {
  const u32 n_tasks = static_cast<u32>(ceil_div(n, rows_per_task));
  if (n_tasks <= 1) {
    if (n > 0) fn(0u, n);
    return;
  }
  args_.workers->run(n_tasks, [&](u32 task_idx, u32) {
    const u32 begin = task_idx * rows_per_task;
    fn(begin, std::min(rows_per_task, n - begin));
  });
}

void CpuBackend::embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) {
  for_rows(batch.n_rows, kRowsPerTask, [&](u32 begin, u32 count) {
    for (u32 i = begin; i < begin + count; ++i) {
      kernels::dequantize_tiled_row(table.type, table.tiled, batch.tokens[i], table.k,
                                    out.data + i * out.stride);
    }
  });
  traffic_.weight_bytes += batch.n_rows * kernels::row_bytes(table.type, table.k);
}

void CpuBackend::rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) {
  for_rows(n, kRowsPerTask, [&](u32 begin, u32 count) {
    args_.table->rms_norm({.x = x.data + begin * x.stride,
                           .x_stride = x.stride,
                           .weight = weight,
                           .out = out.data + begin * out.stride,
                           .out_stride = out.stride,
                           .n_rows = count,
                           .d = d,
                           .eps = eps});
  });
}

void CpuBackend::rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) {
  const u32 head_dim = args_.spec->head_dim;
  for_rows(n, kRowsPerTask, [&](u32 begin, u32 count) {
    for (u32 i = begin; i < begin + count; ++i) {
      f32* heads = x.data + i * x.stride;
      args_.table->rms_norm({.x = heads,
                             .x_stride = head_dim,
                             .weight = weight,
                             .out = heads,
                             .out_stride = head_dim,
                             .n_rows = n_heads,
                             .d = head_dim,
                             .eps = eps});
    }
  });
}

void CpuBackend::quantize(Rows x, u32 k, u32 n) {
  for_rows(n, kRowsPerTask, [&](u32 begin, u32 count) {
    args_.table->quantize_activations({.x = x.data + begin * x.stride,
                                       .x_stride = x.stride,
                                       .q = args_.act_q + u64{begin} * k,
                                       .scales = args_.act_scales + u64{begin} * (k / 32),
                                       .sums = args_.act_sums + u64{begin} * (k / 16),
                                       .n_rows = count,
                                       .k = k});
  });
}

void CpuBackend::project(Rows x, u32 n, std::span<const Projection> projections) {
  TARN_ASSERT(n <= args_.rows_max);
  if (args_.kv_stream != nullptr) args_.kv_stream->pump(0);
  const u32 k = projections[0].weight->k;
  bool quantized = false;
  u32 n_tasks = 0;
  for (const Projection& p : projections) {
    TARN_ASSERT(p.weight->k == k);
    quantized = quantized || kernels::wants_quantized_activations(p.weight->type);
    n_tasks += static_cast<u32>(ceil_div(count_tiles(p.weight->n_out),
                                         kernels::matmul_tiles_per_task(p.weight->type, k, n)));
    traffic_.weight_bytes += p.weight->bytes();
  }
  if (quantized) quantize(x, k, n);

  if (skips_task(0)) return;  // asked here too: the other workers may be given all the tasks
  args_.workers->run(n_tasks, looking(), [&](u32 task_idx, u32 worker_idx) {
    if (skips_task(worker_idx)) return;
    for (const Projection& p : projections) {
      const u32 n_tiles = count_tiles(p.weight->n_out);
      const u32 per_task = kernels::matmul_tiles_per_task(p.weight->type, k, n);
      const u32 tasks = static_cast<u32>(ceil_div(n_tiles, per_task));
      if (task_idx >= tasks) {
        task_idx -= tasks;
        continue;
      }
      const u32 tile_begin = task_idx * per_task;
      args_.table->matmul({.type = p.weight->type,
                           .weights = p.weight->tiled,
                           .n_out = p.weight->n_out,
                           .k = k,
                           .tile_begin = tile_begin,
                           .tile_end = std::min(tile_begin + per_task, n_tiles),
                           .n_acts = n,
                           .x = x.data,
                           .x_stride = x.stride,
                           .q = args_.act_q,
                           .scales = args_.act_scales,
                           .sums = args_.act_sums,
                           .bias = p.bias,
                           .out = p.out.data,
                           .out_stride = p.out.stride});
      return;
    }
  });
}

WorkerPool::Waiting CpuBackend::looking() {
  return {[](void* self) { (void)static_cast<CpuBackend*>(self)->skips_task(0); }, this};
}

bool CpuBackend::skips_task(u32 worker_idx) {
  if (worker_idx == 0 && watch_ != nullptr && !is_abandoned() && !watch_->is_wanted()) {
    abandoned_.store(true, std::memory_order_relaxed);
  }
  return is_abandoned();
}

void CpuBackend::begin_step(const step::Batch& batch) {
  watch_ = batch.watch;
  abandoned_.store(false, std::memory_order_relaxed);
  const u32 n_rot = args_.spec->n_rot;
  for_rows(batch.n_rows, kRowsPerTask, [&](u32 begin, u32 count) {
    kernels::rope_table({.positions = batch.positions + begin,
                         .n_rows = count,
                         .n_rot = n_rot,
                         .inv_freq = args_.inv_freq,
                         .cos = args_.rope_cos + u64{begin} * (n_rot / 2),
                         .sin = args_.rope_sin + u64{begin} * (n_rot / 2)});
  });
}

void CpuBackend::project_add(const ResidualProjection& p, u32 n) {
  const Projection product[] = {{p.weight, nullptr, p.product}};
  project(p.in, n, product);
  for_rows(n, kRowsPerTask, [&](u32 begin, u32 count) {
    for (u32 i = begin; i < begin + count; ++i) {
      args_.table->add({.x = p.x.data + i * p.x.stride,
                        .y = p.product.data + i * p.product.stride,
                        .n = static_cast<u32>(p.weight->n_out)});
    }
  });
}

void CpuBackend::rope(Rows q, Rows k, u32 n) {
  rope_heads(q, n, args_.spec->n_heads);
  rope_heads(k, n, args_.spec->n_kv_heads);
}

void CpuBackend::rope_heads(Rows x, u32 n, u32 n_heads) {
  const model::ModelSpec& spec = *args_.spec;
  for_rows(n, kRowsPerTask, [&](u32 begin, u32 count) {
    args_.table->rope(
        {.x = x.data + begin * x.stride,
         .x_stride = x.stride,
         .cos = args_.rope_cos + u64{begin} * (spec.n_rot / 2),
         .sin = args_.rope_sin + u64{begin} * (spec.n_rot / 2),
         .n_rows = count,
         .n_heads = n_heads,
         .head_dim = spec.head_dim,
         .n_rot = spec.n_rot,
         .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent});
  });
}

void CpuBackend::kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) {
  const u32 head_dim = args_.spec->head_dim;
  for (const step::Run& run : batch.runs) {
    for_rows(run.n_rows, kRowsPerTask, [&](u32 begin, u32 count) {
      for (u32 i = run.row_begin + begin; i < run.row_begin + begin + count; ++i) {
        for (u32 h = 0; h < args_.spec->n_kv_heads; ++h) {
          const u64 first = u64{h} * head_dim;
          args_.table->kv_store(
              {.type = args_.kv_type,
               .k = k.data + i * k.stride + first,
               .v = v.data + i * v.stride + first,
               .slot = run.sequence->slot_for_write(cache_layer, h, batch.slots[i]),
               .head_dim = head_dim});
        }
      }
    });
  }
}

// All slots, with no pages yet.
kernels::AttnArgs CpuBackend::attn_args(const step::Batch& batch, const step::Run& run, u32 kv_head,
                                        u32 block, Rows q, Rows out, u32 worker_idx) const {
  const model::ModelSpec& spec = *args_.spec;
  const u32 row = run.row_begin + block * kernels::kAttnRowsMax;
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  const u64 head_offset = u64{kv_head} * n_group_heads * spec.head_dim;
  return {.type = args_.kv_type,
          .pages = nullptr,
          .page_tokens = args_.page_tokens,
          .head_dim = spec.head_dim,
          .q = q.data + row * q.stride + head_offset,
          .q_stride = q.stride,
          .out = out.data + row * out.stride + head_offset,
          .out_stride = out.stride,
          .n_rows = std::min(kernels::kAttnRowsMax, run.row_begin + run.n_rows - row),
          .n_group_heads = n_group_heads,
          .visible = batch.visible + row,
          .scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim)),
          .scratch = args_.attention + worker_idx * args_.attention_stride_bytes};
}

void CpuBackend::attend_task(const step::Batch& batch, const step::Run& run, u32 cache_layer,
                             u32 kv_head, u32 block, Rows q, Rows out, u32 worker_idx) {
  kernels::AttnArgs attn = attn_args(batch, run, kv_head, block, q, out, worker_idx);
  auto* memory = static_cast<std::byte*>(attn.scratch);
  auto* pages = reinterpret_cast<const u8**>(memory + args_.page_table_offset_bytes);
  run.sequence->pages(cache_layer, kv_head, {pages, args_.pages_max});
  attn.pages = pages;
  if (attn.visible[attn.n_rows - 1] > part_slots()) {  // positions ascend
    attn.state = reinterpret_cast<f32*>(memory + args_.part_state_offset_bytes);
  }
  attend_parts(attn, worker_idx);
}

// A task over [slot_begin, slot_end), with a look between its parts.
void CpuBackend::attend_parts(kernels::AttnArgs attn, u32 worker_idx) {
  const u32 end = std::min(attn.slot_end, attn.visible[attn.n_rows - 1]);
  const u32 part_pages = plan::attn_part_pages(args_.page_tokens);
  for (; end - attn.slot_begin > part_slots(); attn.pages += part_pages) {
    attn.slot_end = attn.slot_begin + part_slots();
    args_.table->attn(attn);
    if (skips_task(worker_idx)) return;
    attn.slot_begin = attn.slot_end;
  }
  attn.slot_end = end;
  args_.table->attn(attn);
}

void CpuBackend::attend_chosen(const step::Run& run, u32 cache_layer, u32 kv_head, Rows q, Rows out,
                               u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const u64 head_offset = u64{kv_head} * (spec.n_heads / spec.n_kv_heads) * spec.head_dim;
  args_.selector->attend({.session = run.session,
                          .sequence = run.sequence,
                          .cache_layer = cache_layer,
                          .kv_head = kv_head,
                          .q = q.data + run.row_begin * q.stride + head_offset,
                          .out = out.data + run.row_begin * out.stride + head_offset,
                          .attention = args_.attention + worker_idx * args_.attention_stride_bytes},
                         worker_idx);
}

void CpuBackend::attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u64 token_bytes =
      2 * kernels::kv_vector_bytes(args_.kv_type, args_.spec->head_dim) * n_kv_heads;
  u32 n_tasks = 0;
  for (const step::Run& run : batch.runs) {
    const u32 n_blocks = static_cast<u32>(ceil_div(run.n_rows, kernels::kAttnRowsMax));
    n_tasks += n_blocks * n_kv_heads;
    if (run.selects) continue;  // counted where it is known what is read
    for (u32 block = 0; block < n_blocks; ++block) {
      const u32 last = std::min((block + 1) * kernels::kAttnRowsMax, run.n_rows) - 1;
      traffic_.kv_bytes += batch.visible[run.row_begin + last] * token_bytes;
    }
  }
  if (args_.kv_stream != nullptr) return attend_streamed(batch, cache_layer, q, out);
  args_.workers->run(n_tasks, looking(), [&](u32 task_idx, u32 worker_idx) {
    if (skips_task(worker_idx)) return;
    for (const step::Run& run : batch.runs) {
      const u32 n_blocks = static_cast<u32>(ceil_div(run.n_rows, kernels::kAttnRowsMax));
      if (task_idx < n_blocks * n_kv_heads) {
        if (run.selects) return attend_chosen(run, cache_layer, task_idx, q, out, worker_idx);
        // The last block sees the most slots: it goes first, so that the tasks end together.
        attend_task(batch, run, cache_layer, task_idx % n_kv_heads,
                    n_blocks - 1 - task_idx / n_kv_heads, q, out, worker_idx);
        return;
      }
      task_idx -= n_blocks * n_kv_heads;
    }
  });
}

void CpuBackend::swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) {
  for_rows(n, 4, [&](u32 begin, u32 count) {
    for (u32 i = begin; i < begin + count; ++i) {
      args_.table->swiglu({.gate = gate.data + i * gate.stride,
                           .up = up.data + i * up.stride,
                           .out = out.data + i * out.stride,
                           .n = d});
    }
  });
}

void CpuBackend::gather(const step::Batch& batch, Rows x, u32 d, Rows out) {
  for (u32 i = 0; i < batch.logit_rows.size(); ++i) {
    std::memcpy(out.data + i * out.stride, x.data + batch.logit_rows[i] * x.stride,
                d * sizeof(f32));
  }
}

void CpuBackend::fetch(Rows from, u32, u64, Rows to) { TARN_ASSERT(to.data == from.data); }

void CpuBackend::summarize(Rows logits, u32, u32 d) {
  TARN_ASSERT(logits.stride == d);
  summarized_ = logits;
}

kernels::LogitsSummary CpuBackend::summary(u32 row) const {
  return kernels::summarize_logits(from_row(summarized_, row).data, summarized_.stride);
}

Backend::Traffic CpuBackend::take_traffic() {
  const Traffic traffic = traffic_;
  traffic_ = {};
  return traffic;
}

}  // namespace tarn::engine
