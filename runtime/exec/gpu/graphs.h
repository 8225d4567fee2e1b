// Graphs of decode steps, captured before READY for each bucket of rows and of spans of slots: a
// step of one row of each of at most 8 sequences, all of them logit rows, is one. Such a step
// launches its graph when it begins, and its ops, up to the logits' fetch, enqueue nothing. A step
// of one row that chooses is a graph too; several, or others beside them, are not.
#pragma once

#include <array>

#include "runtime/exec/forward.h"
#include "runtime/exec/gpu/step.h"

namespace tarn::exec {

class GpuGraphs {
 public:
  explicit GpuGraphs(GpuStep* step) : step_(*step) {}

  void close();
  // Captures every decode step's graph. Each serves up to a bucket of rows and of spans of slots.
  Result<void> capture(const StepCapture& capture);
  // Launches each graph over no rows, which leave nothing, and waits for it.
  Result<void> warm();
  // Returns whether the step is one of a graph's, which is then on its way.
  bool launch(const step::Batch& batch);
  // Returns whether the graph that is captured chooses.
  bool chooses() const { return chooses_; }
  u32 n_spans() const { return n_spans_; }

 private:
  static constexpr u32 kRowBuckets = 4;    // 1, 2, 4, 8 rows
  static constexpr u32 kSpanBuckets = 24;  // 1, 2, 4, ... spans
  GpuGraph*& graph(u32 n_rows, u32 n_spans);
  Result<void> begin(u32 n_rows, u32 n_spans, bool chooses);
  Result<void> end();
  Result<void> capture_step(const StepCapture& capture, u32 n_rows);
  Result<void> warm(GpuGraph* graph, u32 n_rows);

  GpuStep& step_;
  u32 n_rows_ = 0, n_spans_ = 0;  // of the one that is captured
  bool chooses_ = false;
  std::array<std::array<GpuGraph*, kSpanBuckets>, kRowBuckets> graphs_{};
  GpuGraph* choosing_ = nullptr;
};

}  // namespace tarn::exec
