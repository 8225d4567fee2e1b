#include "runtime/exec/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/matmul/matmul_tuning.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::exec {
namespace {

u32 count_tiles(u64 n_out) { return static_cast<u32>(ceil_div(n_out, kernels::kTileRows)); }

}  // namespace

void CpuBackend::embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) {
  tasks_.for_rows(batch.n_rows, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
    for (u32 i = begin; i < begin + count; ++i) {
      kernels::dequantize_tiled_row(table.type, table.tiled, batch.tokens[i], table.k,
                                    out.data + i * out.stride);
    }
  });
  weight_bytes_ += batch.n_rows * kernels::row_bytes(table.type, table.k);
}

void CpuBackend::rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) {
  tasks_.for_rows(n, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
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
  tasks_.for_rows(n, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
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
  tasks_.for_rows(n, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
    args_.table->quantize_activations(
        {.x = x.data + begin * x.stride,
         .x_stride = x.stride,
         .q = args_.memory.step.act_q.data() + u64{begin} * k,
         .scales = args_.memory.step.act_scales.data() + u64{begin} * (k / 32),
         .sums = args_.memory.step.act_sums.data() + u64{begin} * (k / 16),
         .n_rows = count,
         .k = k});
  });
}

void CpuBackend::project(Rows x, u32 n, std::span<const Projection> projections) {
  TARN_ASSERT(n <= args_.rows_max);
  const u32 k = projections[0].weight->k;
  bool quantized = false;
  u32 n_tasks = 0;
  for (const Projection& p : projections) {
    TARN_ASSERT(p.weight->k == k);
    quantized = quantized || kernels::wants_quantized_activations(p.weight->type);
    n_tasks += static_cast<u32>(ceil_div(count_tiles(p.weight->n_out),
                                         kernels::matmul_tiles_per_task(p.weight->type, k, n)));
    weight_bytes_ += p.weight->bytes();
  }
  if (quantized) quantize(x, k, n);

  // Asked here too: the other workers may be given all the tasks.
  if (!tasks_.goes_on(step::Pause::between_ops)) return;
  tasks_.run(n_tasks, [&](u32 task_idx, u32 worker_idx) {
    if (tasks_.skips(worker_idx)) return;
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
                           .q = args_.memory.step.act_q.data(),
                           .scales = args_.memory.step.act_scales.data(),
                           .sums = args_.memory.step.act_sums.data(),
                           .bias = p.bias,
                           .out = p.out.data,
                           .out_stride = p.out.stride});
      return;
    }
  });
}

void CpuBackend::begin_step(const step::Batch& batch) {
  tasks_.begin_step(batch.host);
  const u32 n_rot = args_.spec->n_rot;
  tasks_.for_rows(batch.n_rows, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
    kernels::rope_table({.positions = batch.positions + begin,
                         .n_rows = count,
                         .n_rot = n_rot,
                         .inv_freq = args_.memory.rows.inv_freq.data(),
                         .cos = args_.memory.rope_cos.data() + u64{begin} * (n_rot / 2),
                         .sin = args_.memory.rope_sin.data() + u64{begin} * (n_rot / 2)});
  });
}

void CpuBackend::project_add(const ResidualProjection& p, u32 n) {
  const Projection product[] = {{p.weight, nullptr, p.product}};
  project(p.in, n, product);
  tasks_.for_rows(n, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
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
  tasks_.for_rows(n, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
    args_.table->rope(
        {.x = x.data + begin * x.stride,
         .x_stride = x.stride,
         .cos = args_.memory.rope_cos.data() + u64{begin} * (spec.n_rot / 2),
         .sin = args_.memory.rope_sin.data() + u64{begin} * (spec.n_rot / 2),
         .n_rows = count,
         .n_heads = n_heads,
         .head_dim = spec.head_dim,
         .n_rot = spec.n_rot,
         .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent});
  });
}

void CpuBackend::swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) {
  tasks_.for_rows(n, 4, [&](u32 begin, u32 count) {
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

void CpuBackend::kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) {
  const u32 head_dim = args_.spec->head_dim;
  for (const step::Run& run : batch.runs) {
    tasks_.for_rows(run.n_rows, CpuTasks::kRowsPerTask, [&](u32 begin, u32 count) {
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

Backend::Traffic CpuBackend::take_traffic() {
  Traffic traffic = attention_.take_traffic();
  traffic.weight_bytes = std::exchange(weight_bytes_, 0);
  return traffic;
}

}  // namespace tarn::exec
