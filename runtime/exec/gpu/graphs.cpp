#include "runtime/exec/gpu/graphs.h"

#include <algorithm>
#include <bit>

#include "platform/base/assert.h"

namespace tarn::exec {

void GpuGraphs::close() {
  const auto destroy = [this](GpuGraph*& graph) {
    if (graph != nullptr) step_.device().destroy_graph(graph);
    graph = nullptr;
  };
  for (auto& of_rows : graphs_) std::ranges::for_each(of_rows, destroy);
  destroy(choosing_);
}

// Returns the graph of the smallest buckets that hold a step.
GpuGraph*& GpuGraphs::graph(u32 n_rows, u32 n_spans) {
  const auto rows_idx = static_cast<u32>(std::countr_zero(std::bit_ceil(n_rows)));
  const auto spans_idx = static_cast<u32>(std::countr_zero(std::bit_ceil(n_spans)));
  TARN_ASSERT(rows_idx < kRowBuckets);
  TARN_ASSERT(spans_idx < kSpanBuckets);
  return graphs_[rows_idx][spans_idx];
}

Result<void> GpuGraphs::begin(u32 n_rows, u32 n_spans) {
  TARN_ASSERT(graph(n_rows, n_spans) == nullptr);
  return begin_capture(n_rows, n_spans, /*chooses=*/false);
}

Result<void> GpuGraphs::begin_choosing() {
  TARN_ASSERT(choosing_ == nullptr);
  return begin_capture(1, gpu_spans(step_.sizes().n_chosen_max), /*chooses=*/true);
}

Result<void> GpuGraphs::begin_capture(u32 n_rows, u32 n_spans, bool chooses) {
  TARN_ASSERT(step_.mode() == GpuStep::Mode::eager);
  TARN_CHECK(step_.device().begin_capture(step_.stream()));
  step_.set_mode(GpuStep::Mode::capture);
  step_.place_state(n_rows);
  n_rows_ = n_rows;
  n_spans_ = n_spans;
  chooses_ = chooses;
  return {};
}

Result<void> GpuGraphs::end() {
  TARN_ASSERT(step_.mode() == GpuStep::Mode::capture);
  step_.set_mode(GpuStep::Mode::eager);
  GpuGraph*& captured = chooses_ ? choosing_ : graph(n_rows_, n_spans_);
  TARN_TRY(captured, step_.device().end_capture(step_.stream()));
  return {};
}

Result<void> GpuGraphs::warm(GpuGraph* graph, u32 n_rows) {
  if (graph == nullptr) return {};
  step_.place_state(n_rows);
  std::ranges::fill(step_.host().state, std::byte{0});
  step_.send_state();
  step_.device().launch(graph, step_.stream());
  return step_.finish();
}

Result<void> GpuGraphs::warm() {
  TARN_ASSERT(step_.mode() == GpuStep::Mode::eager);
  for (u32 rows_idx = 0; rows_idx < kRowBuckets; ++rows_idx) {
    for (GpuGraph* graph : graphs_[rows_idx]) TARN_CHECK(warm(graph, 1u << rows_idx));
  }
  return warm(choosing_, 1);
}

bool GpuGraphs::launch(const step::Batch& batch) {
  const bool is_decode = batch.n_rows <= kernels::kGpuMatvecRowsMax &&
                         batch.runs.size() == batch.n_rows &&
                         batch.logit_rows.size() == batch.n_rows;
  const bool may_be_graph = !step_.sizes().in_stripes && batch.kv_watch.rows == nullptr;
  if (!is_decode || !may_be_graph) return false;
  const auto selects = [](const step::Run& run) { return run.selects; };
  const bool some_select = std::ranges::any_of(batch.runs, selects);
  if (some_select && batch.n_rows > 1) return false;
  const u32 visible_max = *std::max_element(batch.visible, batch.visible + batch.n_rows);
  GpuGraph* captured = some_select ? choosing_ : graph(batch.n_rows, gpu_spans(visible_max));
  TARN_ASSERT(captured != nullptr);  // before READY, for every session and span of the plan
  step_.device().launch(captured, step_.stream());
  return true;
}

}  // namespace tarn::exec
