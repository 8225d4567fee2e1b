#include "runtime/exec/gpu/gpu_backend.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::exec {

using Mode = GpuStep::Mode;

Result<void> GpuBackend::open(const GpuBackendArgs& args) {
  TARN_CHECK(step_.open(args));
  if (chooser_.is_on()) chooser_.place_gathered();
  if (parts_.is_on()) TARN_CHECK(parts_.open());
  if (chooser_.is_on()) TARN_CHECK(indexes_.open());
  return finish();
}

void GpuBackend::close() {
  indexes_.close();
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
    if (parts_.is_on()) parts_.begin_step(batch);
    for (const step::Run& run : batch.runs) send_groups(batch, run);
    step_.send_state();
    if (!step_.host().embedded.empty()) {
      step_.send(step_.regions().step.step.x.data(), step_.host().embedded.data(),
                 u64{batch.n_rows} * step_.spec().d_model);
    }
    if (graphs_.launch(batch)) step_.set_mode(Mode::replay);
  }
  each_choosing(batch, [this](u32 row) { chooser_.code_new_keys(row); });
}

void GpuBackend::note_kept_groups(const step::Batch& batch) const {
  for (step::Run& run : batch.runs) {
    if (!run.selects) run.offloaded_end = parts_.n_kept_groups(run);
  }
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
  const GpuState& state = step_.on_host();
  const u32 n = batch.n_rows;
  state.n_rows[0] = n;
  state.n_rows[1] = batch.takes_best ? n : 0;
  std::copy_n(batch.tokens, n, state.tokens.data());
  std::copy_n(batch.slots, n, state.slots.data());
  std::copy_n(batch.visible, n, state.visible.data());
  std::ranges::copy(batch.logit_rows, state.logit_rows.data());
  for (const step::Run& run : batch.runs) {
    std::fill_n(state.sessions.data() + run.row_begin, run.n_rows, step_.sizes().table_of(run));
  }
  if (chooser_.is_on()) chooser_.write_choices(batch);
  kernels::rope_table({.positions = batch.positions,
                       .n_rows = n,
                       .n_rot = step_.spec().n_rot,
                       .inv_freq = step_.host().rows.inv_freq.data(),
                       .cos = state.cos.data(),
                       .sin = state.sin.data()});
}

// Sends the addresses of the frames of the host that the step's rows are written to; else the part
// of a sequence's tables that is not on the device yet: mostly nothing, and a new group of every
// layer where the row before filled one.
void GpuBackend::send_groups(const step::Batch& batch, const step::Run& run) {
  const u32 table = step_.sizes().table_of(run);
  if (!parts_.is_on()) {
    const u32 begin = run.sequence->take_changed_groups();
    return step_.send_groups(table, *run.sequence, begin, run.sequence->n_groups());
  }
  const u32 page_tokens = step_.sizes().group.page_tokens;
  const u32 last_slot = batch.slots[run.row_begin + run.n_rows - 1];
  step_.send_groups(table, *run.sequence, batch.slots[run.row_begin] / page_tokens,
                    last_slot / page_tokens + 1);
}

void GpuBackend::kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) {
  step_.enqueue(&kernels::GpuTable::kv_append, {.pages = step_.pages(cache_layer, 0),
                                                .k = k.data,
                                                .k_stride = k.stride,
                                                .v = v.data,
                                                .v_stride = v.stride,
                                                .slots = step_.on_device().slots.data(),
                                                .n_rows = step_.count(batch.n_rows),
                                                .rows_max = batch.n_rows});
}

// Counts what whole parts read; slots that the host chose are counted where they are chosen.
void GpuBackend::count_kv(const step::Batch& batch) {
  const kv::GroupShape& group = step_.sizes().group;
  const u64 token_bytes = group.page_bytes() * step_.spec().n_kv_heads / group.page_tokens;
  if (step_.mode() == Mode::capture) return;
  for (const step::Run& run : batch.runs) {
    if (parts_.is_on() && run.selects) continue;
    for (u32 i = 0; i < run.n_rows; ++i) {
      traffic_.kv_bytes += step_.on_host().attended[run.row_begin + i] * token_bytes;
    }
  }
}

namespace {

// Rows that read all of their sequence's slots.
bool are_of_one_run(const step::Batch& batch, u32 begin, u32 n_rows) {
  return std::ranges::any_of(batch.runs, [&](const step::Run& run) {
    return !run.selects && begin >= run.row_begin && begin + n_rows <= run.row_begin + run.n_rows;
  });
}

}  // namespace

void GpuBackend::attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  const model::ModelSpec& spec = step_.spec();
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  const bool leaves_acts = spec.head_dim % kGpuActBlock == 0 && acts_for(out, d_out).q != nullptr;
  count_kv(batch);
  if (parts_.is_on()) return parts_.attend({batch, cache_layer, q, out, leaves_acts});
  for (u32 begin = 0; begin < batch.n_rows; begin += kGpuAttnRowsMax) {
    const u32 n_rows = std::min(kGpuAttnRowsMax, batch.n_rows - begin);
    const u32 attended_max = std::ranges::max(step_.on_host().attended.subspan(begin, n_rows));
    each_choosing(batch, [&](u32 row) {
      const bool is_here = row >= begin && row < begin + n_rows;
      if (is_here) chooser_.gather(cache_layer, row, from_row(q, row).data);
    });
    kernels::GpuPages read = step_.pages(cache_layer, begin);
    read.tables = step_.on_device().tables.data() + begin;
    const bool is_captured = step_.mode() == Mode::capture;
    attend_part(step_,
                {.pages = read,
                 .q = from_row(q, begin),
                 .out = from_row(out, begin),
                 .visible = step_.on_device().attended.data() + begin,
                 .quantized = leaves_acts ? step_.acts_from(begin, d_out) : kernels::GpuQuantized{},
                 .n_rows = n_rows,
                 .n_spans = is_captured ? graphs_.n_spans() : gpu_spans(attended_max),
                 .one_sequence = !is_captured && are_of_one_run(batch, begin, n_rows)});
  }
}

}  // namespace tarn::exec
