// Rows that select: codes of the keys that their middle has got, what each KV head chooses, and the
// chosen slots gathered, where attention finds them by tables of their own.
#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/engine/gpu_backend.h"
#include "runtime/engine/selector.h"
#include "runtime/select/select_shape.h"

namespace tarn::engine {

using plan::GpuChoice;

namespace {

// The window has no index: its slots are the last ones.
GpuChoice choice_of(const Selector::DeviceRow& row, SelectMethod method) {
  const select::Segments& s = row.segments;
  const u32 n_chosen = std::min(s.n_middle(), row.k);
  const bool by_index = method == SelectMethod::pq;
  const u32 local_begin = by_index ? s.middle_end : s.middle_end - n_chosen;
  return {.rows = {.slot_begin = s.middle_begin,
                   .begin = by_index ? row.n_coded : s.n_middle(),
                   .end = s.n_middle(),
                   .counted = by_index ? row.n_counted : s.n_middle()},
          .segments = {.n_sinks = s.n_sinks(),
                       .n_places = by_index ? n_chosen : 0,
                       .local_begin = local_begin,
                       .n_slots = s.n_sinks() + n_chosen + s.n_local()}};
}

}  // namespace

// Tables whose groups are what the rows of a launch gather, the same for every layer.
void GpuBackend::place_gathered() {
  const plan::GpuSelectShape& shape = args_.select.shape;
  const model::ModelSpec& spec = *args_.spec;
  const u64 table_elems = u64{spec.n_cache_layers} * args_.pages_max;
  const u64 group_bytes = spec.n_kv_heads * args_.page_bytes;
  u64* const first = args_.host_groups + args_.sessions_max * table_elems;
  for (u32 row = 0; row < shape.n_rows; ++row) {
    for (u32 page = 0; page < shape.gathered_pages; ++page) {
      u8* const group =
          args_.select.gathered + (u64{row} * shape.gathered_pages + page) * group_bytes;
      u64* const entries = first + row * table_elems + u64{page} * spec.n_cache_layers;
      std::fill_n(entries, spec.n_cache_layers, reinterpret_cast<u64>(group));
    }
  }
  send(args_.groups + args_.sessions_max * table_elems, first, shape.n_rows * table_elems);
}

// What each row attends to: what it sees, or what it gathers.
void GpuBackend::write_choices(const step::Batch& batch) {
  auto* const tables = reinterpret_cast<u32*>(args_.host_state + state_.tables);
  auto* const attended = reinterpret_cast<u32*>(args_.host_state + state_.attended);
  auto* const choices = reinterpret_cast<GpuChoice*>(args_.host_state + state_.choices);
  std::copy_n(batch.visible, batch.n_rows, attended);
  std::fill_n(choices, std::min(state_.rows, args_.sessions_max), GpuChoice{});
  for (const step::Run& run : batch.runs) {
    std::fill_n(tables + run.row_begin, run.n_rows, run.session);
    if (!run.selects) continue;
    TARN_ASSERT(run.row_begin < args_.sessions_max);  // generated tokens' rows come first
    const u32 row = run.row_begin;
    choices[row] = choice_of(args_.select.selector->take_row(run.session), args_.select.method);
    attended[row] = choices[row].segments.n_slots;
    tables[row] = args_.sessions_max + row % plan::kGpuAttnRowsMax;
    TARN_ASSERT(attended[row] <= args_.select.n_chosen_max);
  }
}

kernels::GpuPqIndex GpuBackend::pq_index(u32 cache_layer, u32 row) const {
  const select::PqShape& shape = args_.select.pq;
  const select::PqIndex::Layout at = select::PqIndex::layout(shape);
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  return {.format = shape.format,
          .n_kv_heads = n_kv_heads,
          .n_group_heads = args_.spec->n_heads / n_kv_heads,
          .n_subspaces = shape.n_subspaces,
          .dims = shape.dims(),
          .adjacent_dims = shape.adjacent_dims,
          .n_padded = shape.n_padded(),
          .heads = args_.select.indexes + u64{cache_layer} * n_kv_heads * at.bytes,
          .head_stride = at.bytes,
          .table_stride = args_.select.shape.table_bytes,
          .table = state<u32>(state_.sessions) + row,
          .half_norms_at = at.half_norms,
          .codes_at = at.codes,
          .counts_at = shape.has_pairs() ? at.counts : 0,
          .codes_stride = kernels::pq_row_bytes(shape.format, shape.capacity_tokens)};
}

// Keys that left the local window, of all layers: they were in the KV before this step.
void GpuBackend::code_new_keys(u32 row) {
  if (args_.select.method != SelectMethod::pq) return;
  const kernels::GpuPages from = pages(0, row);
  enqueue(args_.table->pq_assign,
          kernels::GpuPqAssignArgs{
              .index = pq_index(0, row),
              .keys = {.type = kernels::kv_tensor_type(args_.kv_type),
                       .page_tokens = from.page_tokens,
                       .groups = from.groups,
                       .table_stride = from.table_stride,
                       .group_stride = from.group_stride,
                       .page_stride = from.page_stride,
                       .slot_stride = 2 * kernels::kv_vector_bytes(args_.kv_type, from.head_dim)},
              .n_cache_layers = args_.spec->n_cache_layers,
              .rows = &state<GpuChoice>(state_.choices)[row].rows});
}

// The places that each KV head chooses of the middle.
void GpuBackend::choose(u32 cache_layer, u32 row, const f32* q) {
  const GpuSelectArgs& mine = args_.select;
  const GpuChoice* choice = state<GpuChoice>(state_.choices) + row;
  const kernels::GpuPqIndex index = pq_index(cache_layer, row);
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(args_.spec->head_dim));
  enqueue(args_.table->pq_lut, kernels::GpuPqLutArgs{.index = index, .q = q, .lut = mine.lut});
  if (index.counts_at != 0) {
    enqueue(args_.table->pq_pairs, kernels::GpuPqPairsArgs{.index = index,
                                                           .lut = mine.lut,
                                                           .out = mine.places,
                                                           .out_stride = mine.n_chosen_max,
                                                           .n_tokens = &choice->rows.end,
                                                           .k = &choice->segments.n_places,
                                                           .scale = scale});
    return;
  }
  const u64 stride = mine.pq.capacity_tokens;
  enqueue(args_.table->pq_score, kernels::GpuPqScoreArgs{.index = index,
                                                         .lut = mine.lut,
                                                         .scores = mine.scores,
                                                         .scores_stride = stride,
                                                         .n_tokens = &choice->rows.end,
                                                         .tokens_max = mine.pq.capacity_tokens,
                                                         .scale = scale});
  const bool has_groups = index.n_group_heads > 1;  // one head ranks by its scores
  if (has_groups) {
    enqueue(args_.table->pq_weigh, kernels::GpuPqWeighArgs{.scores = mine.scores,
                                                           .scores_stride = stride,
                                                           .weights = mine.weights,
                                                           .weights_stride = stride,
                                                           .n_tokens = &choice->rows.end,
                                                           .n_kv_heads = index.n_kv_heads,
                                                           .n_group_heads = index.n_group_heads});
  }
  enqueue(args_.table->top_k,
          kernels::GpuTopKArgs{.values = has_groups ? mine.weights : mine.scores,
                               .values_stride = stride,
                               .out = mine.places,
                               .out_stride = mine.n_chosen_max,
                               .n = &choice->rows.end,
                               .k = &choice->segments.n_places,
                               .n_rows = index.n_kv_heads});
}

// A row that selects: chooses, and has the chosen slots where its table says.
void GpuBackend::gather_chosen(u32 cache_layer, u32 row, const f32* q) {
  const GpuSelectArgs& mine = args_.select;
  if (mine.method == SelectMethod::pq) choose(cache_layer, row, q);
  const u64 row_bytes = u64{mine.shape.gathered_pages} * args_.spec->n_kv_heads * args_.page_bytes;
  enqueue(
      args_.table->gather_slots,
      kernels::GpuGatherSlotsArgs{.pages = pages(cache_layer, 0),
                                  .row = row,
                                  .places = mine.places,
                                  .places_stride = mine.n_chosen_max,
                                  .segments = &state<GpuChoice>(state_.choices)[row].segments,
                                  .slots_max = mine.n_chosen_max,
                                  .out = mine.gathered + row % plan::kGpuAttnRowsMax * row_bytes});
}

}  // namespace tarn::engine
