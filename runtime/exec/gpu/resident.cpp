#include "runtime/exec/gpu/resident.h"

#include <algorithm>

namespace tarn::exec {

using Mode = GpuStep::Mode;

Result<void> GpuResident::open() {
  if (!chooser_.chooses()) return {};
  chooser_.place_gathered();
  return indexes_.open();
}

void GpuResident::close() {
  indexes_.close();
  graphs_.close();
}

// Sends the part of a sequence's tables that is not on the device yet: mostly nothing, and a new
// group of every layer where the row before filled one.
void GpuResident::begin_step(const step::Batch& batch) {
  if (chooser_.chooses()) chooser_.write_choices(batch);
  for (const step::Run& run : batch.runs) {
    const u32 begin = run.sequence->take_changed_groups();
    step_.send_groups(step_.sizes().table_of(run), *run.sequence, begin, run.sequence->n_groups());
  }
}

// Calls fn(row) for every row that chooses on the device.
template <class Fn>
void GpuResident::each_choosing(const step::Batch& batch, Fn&& fn) const {
  if (step_.mode() == Mode::capture) {
    if (graphs_.chooses()) fn(0);
    return;
  }
  for (const step::Run& run : batch.runs) {
    if (run.selects) fn(run.row_begin);
  }
}

void GpuResident::begin_ops(const step::Batch& batch) {
  each_choosing(batch, [this](u32 row) { chooser_.code_new_keys(row); });
}

void GpuResident::count(const step::Batch& batch) {
  const kv::GroupShape& group = step_.sizes().group;
  const u64 token_bytes = group.page_bytes() * step_.spec().n_kv_heads / group.page_tokens;
  for (u32 row = 0; row < batch.n_rows; ++row)
    kv_bytes_ += step_.on_host().attended[row] * token_bytes;
}

namespace {

// Rows that read all of their sequence's slots.
bool are_of_one_run(const step::Batch& batch, u32 begin, u32 n_rows) {
  return std::ranges::any_of(batch.runs, [&](const step::Run& run) {
    return !run.selects && begin >= run.row_begin && begin + n_rows <= run.row_begin + run.n_rows;
  });
}

}  // namespace

void GpuResident::attend(const Attended& a) {
  const step::Batch& batch = a.batch;
  const u64 d_out = u64{step_.spec().n_heads} * step_.spec().head_dim;
  const bool is_captured = step_.mode() == Mode::capture;
  if (!is_captured) count(batch);
  for (u32 begin = 0; begin < batch.n_rows; begin += kGpuAttnRowsMax) {
    const u32 n_rows = std::min(kGpuAttnRowsMax, batch.n_rows - begin);
    const u32 attended_max = std::ranges::max(step_.on_host().attended.subspan(begin, n_rows));
    each_choosing(batch, [&](u32 row) {
      const bool is_here = row >= begin && row < begin + n_rows;
      if (is_here) chooser_.gather(a.cache_layer, row, from_row(a.q, row).data);
    });
    kernels::GpuPages read = step_.pages(a.cache_layer, begin);
    read.tables = step_.on_device().tables.data() + begin;
    attend_part(step_, {.pages = read,
                        .q = from_row(a.q, begin),
                        .out = from_row(a.out, begin),
                        .visible = step_.on_device().attended.data() + begin,
                        .quantized =
                            a.leaves_acts ? step_.acts_from(begin, d_out) : kernels::GpuQuantized{},
                        .n_rows = n_rows,
                        .n_spans = is_captured ? graphs_.n_spans() : gpu_spans(attended_max),
                        .one_sequence = !is_captured && are_of_one_run(batch, begin, n_rows)});
  }
}

}  // namespace tarn::exec
