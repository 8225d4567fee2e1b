#include "runtime/exec/gpu/chooser.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::exec {

namespace {

// Without codes a row reads the last slots.
GpuChoice choice_of(const step::DeviceRow& row, bool by_codes) {
  const step::TokenRanges& s = row.ranges;
  const u32 n_chosen = std::min(s.n_middle(), row.k);
  const u32 local_begin = by_codes ? s.middle_end : s.middle_end - n_chosen;
  return {.rows = {.slot_begin = s.middle_begin,
                   .begin = by_codes ? row.n_coded : s.n_middle(),
                   .end = s.n_middle(),
                   .counted = by_codes ? row.n_counted : s.n_middle()},
          .segments = {.n_sinks = s.n_sinks(),
                       .n_places = by_codes ? n_chosen : 0,
                       .local_begin = local_begin,
                       .n_slots = s.n_sinks() + n_chosen + s.n_local()}};
}

kernels::GpuPqIndex index_of(const GpuStep& step, u32 cache_layer, u32 row) {
  const method::DeviceCodes& codes = step.sizes().codes;
  const u32 n_kv_heads = step.spec().n_kv_heads;
  return {.format = codes.format,
          .n_kv_heads = n_kv_heads,
          .n_group_heads = step.spec().n_heads / n_kv_heads,
          .n_subspaces = codes.n_subspaces,
          .dims = codes.dims,
          .adjacent_dims = codes.adjacent_dims,
          .n_padded = codes.n_padded,
          .heads = step.regions().indexes.bytes.data() +
                   u64{cache_layer} * n_kv_heads * codes.head_bytes,
          .head_stride = codes.head_bytes,
          .table_stride = step.sizes().table_bytes(),
          .table = step.on_device().sessions.data() + row,
          .half_norms_at = codes.half_norms_at,
          .codes_at = codes.codes_at,
          .counts_at = codes.counts_at,
          .codes_stride = kernels::pq_row_bytes(codes.format, codes.capacity_tokens)};
}

}  // namespace

void GpuChooser::place_gathered() {
  const GpuSizes& sizes = step_.sizes();
  const model::ModelSpec& spec = step_.spec();
  const u64 table_elems = u64{spec.n_cache_layers} * sizes.pages_max();
  u8* const gathered = step_.regions().select.gathered.data();
  const u64 group_bytes = spec.n_kv_heads * step_.sizes().group.page_bytes();
  u64* const first = step_.host().groups.data() + step_.sizes().sessions_max * table_elems;
  for (u32 row = 0; row < sizes.choosing_rows(); ++row) {
    for (u32 page = 0; page < sizes.gathered_pages(); ++page) {
      u8* const group = gathered + (u64{row} * sizes.gathered_pages() + page) * group_bytes;
      u64* const entries = first + row * table_elems + u64{page} * spec.n_cache_layers;
      std::fill_n(entries, spec.n_cache_layers, reinterpret_cast<u64>(group));
    }
  }
  step_.send(step_.regions().attention.groups.data() + step_.sizes().sessions_max * table_elems,
             first, sizes.choosing_rows() * table_elems);
}

void GpuChooser::write_choices(const step::Batch& batch) {
  const GpuState& state = step_.on_host();
  std::copy_n(batch.visible, batch.n_rows, state.attended.data());
  std::ranges::fill(state.choices, GpuChoice{});
  for (const step::Run& run : batch.runs) {
    std::fill_n(state.tables.data() + run.row_begin, run.n_rows, step_.sizes().table_of(run));
    if (!run.selects) continue;
    const u32 row = run.row_begin;
    TARN_ASSERT(row < step_.sizes().sessions_max);  // generated tokens' rows come first
    GpuChoice& choice = state.choices[row];
    choice = choice_of(step_.args().parts->take_device_row(run), step_.sizes().codes.exist());
    state.attended[row] = choice.segments.n_slots;
    state.tables[row] = step_.sizes().sessions_max + row % kGpuAttnRowsMax;
    TARN_ASSERT(state.attended[row] <= step_.sizes().n_chosen_max);
  }
}

void GpuChooser::code_new_keys(u32 row) {
  if (!step_.sizes().codes.exist()) return;
  const kernels::GpuPages from = step_.pages(0, row);
  step_.enqueue(
      &kernels::GpuTable::pq_assign,
      {.index = index_of(step_, 0, row),
       .keys = {.type = kernels::kv_tensor_type(step_.args().kv_type),
                .page_tokens = from.page_tokens,
                .groups = from.groups,
                .table_stride = from.table_stride,
                .group_stride = from.group_stride,
                .page_stride = from.page_stride,
                .slot_stride = 2 * kernels::kv_vector_bytes(step_.args().kv_type, from.head_dim)},
       .n_cache_layers = step_.spec().n_cache_layers,
       .rows = &step_.on_device().choices[row].rows});
}

// Chooses the tokens of the middle for each KV head.
void GpuChooser::choose(u32 cache_layer, u32 row, const f32* q) {
  const GpuSelectMemory& mine = step_.regions().select;
  const GpuChoice* choice = step_.on_device().choices.data() + row;
  const kernels::GpuPqIndex index = index_of(step_, cache_layer, row);
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(step_.spec().head_dim));
  step_.enqueue(&kernels::GpuTable::pq_lut, {.index = index, .q = q, .lut = mine.lut.data()});
  if (index.counts_at != 0) {
    step_.enqueue(&kernels::GpuTable::pq_pairs, {.index = index,
                                                 .lut = mine.lut.data(),
                                                 .out = mine.places.data(),
                                                 .out_stride = step_.sizes().n_chosen_max,
                                                 .n_tokens = &choice->rows.end,
                                                 .k = &choice->segments.n_places,
                                                 .scale = scale});
    return;
  }
  const u64 stride = step_.sizes().codes.capacity_tokens;
  step_.enqueue(&kernels::GpuTable::pq_score, {.index = index,
                                               .lut = mine.lut.data(),
                                               .scores = mine.scores.data(),
                                               .scores_stride = stride,
                                               .n_tokens = &choice->rows.end,
                                               .tokens_max = step_.sizes().codes.capacity_tokens,
                                               .scale = scale});
  const bool has_groups = index.n_group_heads > 1;  // one head ranks by its scores
  if (has_groups) {
    step_.enqueue(&kernels::GpuTable::pq_weigh, {.scores = mine.scores.data(),
                                                 .scores_stride = stride,
                                                 .weights = mine.weights.data(),
                                                 .weights_stride = stride,
                                                 .n_tokens = &choice->rows.end,
                                                 .n_kv_heads = index.n_kv_heads,
                                                 .n_group_heads = index.n_group_heads});
  }
  step_.enqueue(&kernels::GpuTable::top_k,
                {.values = has_groups ? mine.weights.data() : mine.scores.data(),
                 .values_stride = stride,
                 .out = mine.places.data(),
                 .out_stride = step_.sizes().n_chosen_max,
                 .n = &choice->rows.end,
                 .k = &choice->segments.n_places,
                 .n_rows = index.n_kv_heads});
}

void GpuChooser::gather(u32 cache_layer, u32 row, const f32* q) {
  const GpuSelectMemory& mine = step_.regions().select;
  if (step_.sizes().codes.exist()) choose(cache_layer, row, q);
  const u64 row_bytes = u64{step_.sizes().gathered_pages()} * step_.spec().n_kv_heads *
                        step_.sizes().group.page_bytes();
  step_.enqueue(&kernels::GpuTable::gather_slots,
                {.pages = step_.pages(cache_layer, 0),
                 .row = row,
                 .places = mine.places.data(),
                 .places_stride = step_.sizes().n_chosen_max,
                 .segments = &step_.on_device().choices[row].segments,
                 .slots_max = step_.sizes().n_chosen_max,
                 .out = mine.gathered.data() + row % kGpuAttnRowsMax * row_bytes});
}

}  // namespace tarn::exec
