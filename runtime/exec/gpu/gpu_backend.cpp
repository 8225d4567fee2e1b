#include "runtime/exec/gpu/gpu_backend.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::exec {

using Mode = GpuStep::Mode;

Result<void> GpuBackend::open(const GpuBackendArgs& args) {
  TARN_CHECK(step_.open(args));
  if (chooser_.is_on()) chooser_.place_gathered();
  if (parts_.is_on()) TARN_CHECK(parts_.open());
  return finish();
}

void GpuBackend::close() {
  parts_.close();
  graphs_.close();
  step_.close();
}

void GpuBackend::begin_step(const step::Batch& batch) {
  forget_acts();
  if (step_.mode() != Mode::capture) {
    step_.set_mode(Mode::eager);
    step_.place_state(batch.n_rows);
    write_state(batch);
    if (parts_.is_on()) {
      parts_.begin_step(batch);
    } else {
      for (const step::Run& run : batch.runs) send_groups(run);
    }
    step_.send_state();
    const GpuBackendArgs& args = step_.args();
    if (!args.host.embedded.empty()) {
      step_.send(args.on_device().step.step.x.data(), args.host.embedded.data(),
                 u64{batch.n_rows} * args.spec->d_model);
    }
    if (graphs_.launch(batch)) step_.set_mode(Mode::replay);
  }
  each_choosing(batch, [this](u32 row) { chooser_.code_new_keys(row); });
}

// Calls fn(row) for every row that chooses on the device.
template <class Fn>
void GpuBackend::each_choosing(const step::Batch& batch, Fn&& fn) const {
  if (step_.mode() == Mode::capture) {
    if (graphs_.chooses()) fn(0);
    return;
  }
  for (const step::Run& run : batch.runs) {
    if (run.selects) fn(run.row_begin);
  }
}

void GpuBackend::write_state(const step::Batch& batch) {
  const GpuStateShape& at = step_.places();
  const u32 n = batch.n_rows;
  step_.on_host<u32>(at.n_rows)[0] = n;
  step_.on_host<u32>(at.n_rows)[1] = batch.takes_best ? n : 0;
  std::copy_n(batch.tokens, n, step_.on_host<u32>(at.tokens));
  std::copy_n(batch.slots, n, step_.on_host<u32>(at.slots));
  std::copy_n(batch.visible, n, step_.on_host<u32>(at.visible));
  std::ranges::copy(batch.logit_rows, step_.on_host<u32>(at.logit_rows));
  for (const step::Run& run : batch.runs) {
    std::fill_n(step_.on_host<u32>(at.sessions) + run.row_begin, run.n_rows, run.session);
  }
  if (chooser_.is_on()) chooser_.write_choices(batch);
  kernels::rope_table({.positions = batch.positions,
                       .n_rows = n,
                       .n_rot = step_.args().spec->n_rot,
                       .inv_freq = step_.args().host.rows.inv_freq.data(),
                       .cos = step_.on_host<f32>(at.cos),
                       .sin = step_.on_host<f32>(at.sin)});
}

// The part of a sequence's tables that is not on the device yet: mostly nothing, and a new group of
// every layer, side by side, where the row before filled one.
void GpuBackend::send_groups(const step::Run& run) {
  const GpuBackendArgs& args = step_.args();
  TARN_ASSERT(run.session < args.sizes.sessions_max);
  const u32 n_layers = args.spec->n_cache_layers;
  const u32 n_groups = run.sequence->n_groups();
  const u32 begin = run.sequence->take_changed_groups();
  TARN_ASSERT(begin <= n_groups && n_groups <= args.sizes.pages_max());
  if (begin == n_groups) return;
  const u64 first = (u64{run.session} * args.sizes.pages_max() + begin) * n_layers;
  u64* address = args.host.groups.data() + first;
  for (u32 group_idx = begin; group_idx < n_groups; ++group_idx) {
    for (u32 layer = 0; layer < n_layers; ++layer) {
      *address++ = run.sequence->group_address(layer, group_idx);
    }
  }
  step_.send(args.on_device().attention.groups.data() + first, args.host.groups.data() + first,
             u64{n_groups - begin} * n_layers);
}

void GpuBackend::kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) {
  step_.enqueue(step_.args().table->kv_append,
                kernels::GpuKvAppendArgs{.pages = step_.pages(cache_layer, 0),
                                         .k = k.data,
                                         .k_stride = k.stride,
                                         .v = v.data,
                                         .v_stride = v.stride,
                                         .slots = step_.on_device<u32>(step_.places().slots),
                                         .n_rows = step_.count(batch.n_rows),
                                         .rows_max = batch.n_rows});
}

// Slots that a row attends to.
u32 GpuBackend::attended(u32 row) const {
  return step_.on_host<const u32>(step_.places().attended)[row];
}

// What is read of slots that the host chose is counted where they are chosen.
void GpuBackend::count_kv(const step::Batch& batch) {
  const GpuBackendArgs& args = step_.args();
  const u64 token_bytes =
      args.sizes.group.page_bytes() * args.spec->n_kv_heads / args.sizes.group.page_tokens;
  if (step_.mode() == Mode::capture) return;
  for (const step::Run& run : batch.runs) {
    if (parts_.is_on() && run.selects) continue;
    for (u32 i = 0; i < run.n_rows; ++i) {
      traffic_.kv_bytes += attended(run.row_begin + i) * token_bytes;
    }
  }
}

void GpuBackend::attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  const model::ModelSpec& spec = *step_.args().spec;
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  const bool leaves_acts = spec.head_dim % kGpuActBlock == 0 && acts_for(out, d_out).q != nullptr;
  count_kv(batch);
  if (parts_.is_on()) return parts_.attend({batch, cache_layer, q, out, leaves_acts});
  for (u32 begin = 0; begin < batch.n_rows; begin += kGpuAttnRowsMax) {
    const u32 n_rows = std::min(kGpuAttnRowsMax, batch.n_rows - begin);
    u32 attended_max = 0;
    for (u32 row = begin; row < begin + n_rows; ++row) {
      attended_max = std::max(attended_max, attended(row));
    }
    each_choosing(batch, [&](u32 row) {
      const bool is_here = row >= begin && row < begin + n_rows;
      if (is_here) chooser_.gather(cache_layer, row, from_row(q, row).data);
    });
    kernels::GpuPages read = step_.pages(cache_layer, begin);
    read.tables = step_.on_device<u32>(step_.places().tables) + begin;
    const bool is_captured = step_.mode() == Mode::capture;
    attend_part(step_,
                {.pages = read,
                 .q = from_row(q, begin),
                 .out = from_row(out, begin),
                 .visible = step_.on_device<u32>(step_.places().attended) + begin,
                 .quantized = leaves_acts ? step_.acts_from(begin, d_out) : kernels::GpuQuantized{},
                 .n_rows = n_rows,
                 .n_spans = is_captured ? graphs_.n_spans() : gpu_spans(attended_max)});
  }
}

}  // namespace tarn::exec
