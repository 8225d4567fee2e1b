#include "runtime/exec/gpu/chooser.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::exec {

namespace {

// Without codes a row reads the last slots.
GpuChoice choice_of(const method::DeviceRow& row, bool by_codes) {
  const method::TokenRanges& s = row.ranges;
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
  const method::DeviceCodes& codes = step.args().sizes.codes;
  const u32 n_kv_heads = step.args().spec->n_kv_heads;
  return {.format = codes.format,
          .n_kv_heads = n_kv_heads,
          .n_group_heads = step.args().spec->n_heads / n_kv_heads,
          .n_subspaces = codes.n_subspaces,
          .dims = codes.dims,
          .adjacent_dims = codes.adjacent_dims,
          .n_padded = codes.n_padded,
          .heads = step.args().on_device().indexes.bytes.data() +
                   u64{cache_layer} * n_kv_heads * codes.head_bytes,
          .head_stride = codes.head_bytes,
          .table_stride = step.args().sizes.table_bytes(),
          .table = step.on_device<u32>(step.places().sessions) + row,
          .half_norms_at = codes.half_norms_at,
          .codes_at = codes.codes_at,
          .counts_at = codes.counts_at,
          .codes_stride = kernels::pq_row_bytes(codes.format, codes.capacity_tokens)};
}

}  // namespace

// Tables whose groups are what the rows of a launch gather, the same for every layer.
void GpuChooser::place_gathered() {
  const GpuSizes& sizes = step_.args().sizes;
  const model::ModelSpec& spec = *step_.args().spec;
  const u64 table_elems = u64{spec.n_cache_layers} * step_.args().sizes.pages_max();
  u8* const gathered = step_.args().on_device().select.gathered.data();
  const u64 group_bytes = spec.n_kv_heads * step_.args().sizes.group.page_bytes();
  u64* const first =
      step_.args().host.groups.data() + step_.args().sizes.sessions_max * table_elems;
  for (u32 row = 0; row < sizes.choosing_rows(); ++row) {
    for (u32 page = 0; page < sizes.gathered_pages(); ++page) {
      u8* const group = gathered + (u64{row} * sizes.gathered_pages() + page) * group_bytes;
      u64* const entries = first + row * table_elems + u64{page} * spec.n_cache_layers;
      std::fill_n(entries, spec.n_cache_layers, reinterpret_cast<u64>(group));
    }
  }
  step_.send(step_.args().on_device().attention.groups.data() +
                 step_.args().sizes.sessions_max * table_elems,
             first, sizes.choosing_rows() * table_elems);
}

// What each row attends to: what it sees, or what it gathers.
void GpuChooser::write_choices(const step::Batch& batch) {
  auto* const tables = step_.on_host<u32>(step_.places().tables);
  auto* const attended = step_.on_host<u32>(step_.places().attended);
  auto* const choices = step_.on_host<GpuChoice>(step_.places().choices);
  std::copy_n(batch.visible, batch.n_rows, attended);
  std::fill_n(choices, std::min(step_.places().rows, step_.args().sizes.sessions_max), GpuChoice{});
  for (const step::Run& run : batch.runs) {
    std::fill_n(tables + run.row_begin, run.n_rows, run.session);
    if (!run.selects) continue;
    TARN_ASSERT(run.row_begin <
                step_.args().sizes.sessions_max);  // generated tokens' rows come first
    const u32 row = run.row_begin;
    choices[row] =
        choice_of(step_.args().parts->take_device_row(run), step_.args().sizes.codes.exist());
    attended[row] = choices[row].segments.n_slots;
    tables[row] = step_.args().sizes.sessions_max + row % kGpuAttnRowsMax;
    TARN_ASSERT(attended[row] <= step_.args().sizes.n_chosen_max);
  }
}

// Keys that left the local window, of all layers: they were in the KV before this step.
void GpuChooser::code_new_keys(u32 row) {
  if (!step_.args().sizes.codes.exist()) return;
  const kernels::GpuPages from = step_.pages(0, row);
  step_.enqueue(step_.args().table->pq_assign,
                kernels::GpuPqAssignArgs{
                    .index = index_of(step_, 0, row),
                    .keys = {.type = kernels::kv_tensor_type(step_.args().kv_type),
                             .page_tokens = from.page_tokens,
                             .groups = from.groups,
                             .table_stride = from.table_stride,
                             .group_stride = from.group_stride,
                             .page_stride = from.page_stride,
                             .slot_stride =
                                 2 * kernels::kv_vector_bytes(step_.args().kv_type, from.head_dim)},
                    .n_cache_layers = step_.args().spec->n_cache_layers,
                    .rows = &step_.on_device<GpuChoice>(step_.places().choices)[row].rows});
}

// The places that each KV head chooses of the middle.
void GpuChooser::choose(u32 cache_layer, u32 row, const f32* q) {
  const GpuSelectMemory& mine = step_.args().on_device().select;
  const GpuChoice* choice = step_.on_device<GpuChoice>(step_.places().choices) + row;
  const kernels::GpuPqIndex index = index_of(step_, cache_layer, row);
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(step_.args().spec->head_dim));
  step_.enqueue(step_.args().table->pq_lut,
                kernels::GpuPqLutArgs{.index = index, .q = q, .lut = mine.lut.data()});
  if (index.counts_at != 0) {
    step_.enqueue(step_.args().table->pq_pairs,
                  kernels::GpuPqPairsArgs{.index = index,
                                          .lut = mine.lut.data(),
                                          .out = mine.places.data(),
                                          .out_stride = step_.args().sizes.n_chosen_max,
                                          .n_tokens = &choice->rows.end,
                                          .k = &choice->segments.n_places,
                                          .scale = scale});
    return;
  }
  const u64 stride = step_.args().sizes.codes.capacity_tokens;
  step_.enqueue(step_.args().table->pq_score,
                kernels::GpuPqScoreArgs{.index = index,
                                        .lut = mine.lut.data(),
                                        .scores = mine.scores.data(),
                                        .scores_stride = stride,
                                        .n_tokens = &choice->rows.end,
                                        .tokens_max = step_.args().sizes.codes.capacity_tokens,
                                        .scale = scale});
  const bool has_groups = index.n_group_heads > 1;  // one head ranks by its scores
  if (has_groups) {
    step_.enqueue(step_.args().table->pq_weigh,
                  kernels::GpuPqWeighArgs{.scores = mine.scores.data(),
                                          .scores_stride = stride,
                                          .weights = mine.weights.data(),
                                          .weights_stride = stride,
                                          .n_tokens = &choice->rows.end,
                                          .n_kv_heads = index.n_kv_heads,
                                          .n_group_heads = index.n_group_heads});
  }
  step_.enqueue(
      step_.args().table->top_k,
      kernels::GpuTopKArgs{.values = has_groups ? mine.weights.data() : mine.scores.data(),
                           .values_stride = stride,
                           .out = mine.places.data(),
                           .out_stride = step_.args().sizes.n_chosen_max,
                           .n = &choice->rows.end,
                           .k = &choice->segments.n_places,
                           .n_rows = index.n_kv_heads});
}

// A row that selects: chooses, and has the chosen slots where its table says.
void GpuChooser::gather(u32 cache_layer, u32 row, const f32* q) {
  const GpuSelectMemory& mine = step_.args().on_device().select;
  if (step_.args().sizes.codes.exist()) choose(cache_layer, row, q);
  const u64 row_bytes = u64{step_.args().sizes.gathered_pages()} * step_.args().spec->n_kv_heads *
                        step_.args().sizes.group.page_bytes();
  step_.enqueue(step_.args().table->gather_slots,
                kernels::GpuGatherSlotsArgs{
                    .pages = step_.pages(cache_layer, 0),
                    .row = row,
                    .places = mine.places.data(),
                    .places_stride = step_.args().sizes.n_chosen_max,
                    .segments = &step_.on_device<GpuChoice>(step_.places().choices)[row].segments,
                    .slots_max = step_.args().sizes.n_chosen_max,
                    .out = mine.gathered.data() + row % kGpuAttnRowsMax * row_bytes});
}

}  // namespace tarn::exec
