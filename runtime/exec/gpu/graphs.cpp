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

Result<void> GpuGraphs::begin(u32 n_rows, u32 n_spans, bool chooses) {
  TARN_ASSERT((chooses ? choosing_ : graph(n_rows, n_spans)) == nullptr);
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

// Ops see the state of the step that is captured, which stands for a full bucket.
Result<void> GpuGraphs::capture_step(const StepCapture& capture, u32 n_rows) {
  step::Batch batch = *capture.forward.batch;
  batch.n_rows = n_rows;
  batch.logit_rows = capture.logit_rows.first(n_rows);  // as many, which is all that counts
  ForwardArgs of_step = capture.forward;
  of_step.batch = &batch;
  forward_layers(of_step);
  forward_logits(of_step, 0, n_rows, capture.logits);
  of_step.backend->summarize(capture.logits, n_rows, step_.spec().n_vocab);
  return end();
}

Result<void> GpuGraphs::capture(const StepCapture& capture) {
  const GpuSizes& sizes = step_.sizes();
  const u32 rows_max = std::min(sizes.sessions_max, kernels::kGpuMatvecRowsMax);
  const u32 spans_max = gpu_spans(sizes.context_tokens);
  for (u32 n_rows = 1; n_rows <= std::bit_ceil(rows_max); n_rows *= 2) {
    for (u32 n_spans = 1; n_spans <= std::bit_ceil(spans_max); n_spans *= 2) {
      TARN_CHECK(begin(n_rows, std::min(n_spans, spans_max), /*chooses=*/false));
      TARN_CHECK(capture_step(capture, n_rows));
    }
  }
  if (sizes.choosing_rows() == 0) return {};
  TARN_CHECK(begin(1, gpu_spans(sizes.n_chosen_max), /*chooses=*/true));
  return capture_step(capture, 1);
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
  if (!is_decode || batch.kv_watch.rows != nullptr) return false;
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
