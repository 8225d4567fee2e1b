// Computes steps: a backend, the buffers of a step, and its batch.
//
//   a step     clear(), add() each run; run_layers(), finish(); then run_logits(), finish() until
//              all logit rows are done
//   errors     finish() tells the device's. Nothing that the step computed may be believed then
//   memory     the plan's, lent until close()
//   thread     the engine's
#pragma once

#include "runtime/exec/processor.h"
#include "runtime/model/embedding_file.h"

namespace tarn::lab {
class Probe;
}

namespace tarn::exec {

struct ExecutorArgs {
  u32 logit_rows_max = 0;
  model::LoadedModel* model = nullptr;
  Rows host_logits{};  // [logit_rows_max, n_vocab]
  StepSetup setup{};
};

class Executor {
 public:
  void open(const ExecutorArgs& args);
  void close() { forward_ = {}; }
  // Returns a step as a processor captures it.
  StepCapture capture() const { return {forward_, logit_rows_, args_.setup.logits}; }
  const char* isa() const { return forward_.backend->isa(); }

  step::Batch& batch() { return batch_; }
  const step::Batch& batch() const { return batch_; }
  void clear();
  // Adds the next rows of a run's sequence; row_begin and n_rows are made here. The last
  // n_logit_rows of them want logits.
  void add(step::Run run, std::span<const u32> tokens, u32 n_logit_rows);
  // Adds rows at these slots of those of the sequence that come next, whose ids are `ids`. The run
  // completes all of them. Without logits.
  void add_at(step::Run run, std::span<const u32> ids, std::span<const u32> slots);
  // Reads the rows' embeddings, where they are in the file.
  Result<void> read_embeddings();
  // Runs that have chunks of their KV on the device need no frames for them.
  void note_kept_groups() { forward_.backend->note_kept_groups(batch_); }
  void run_layers(step::StepHost* host);
  // Returns whether the host has said no, and the layers mean nothing.
  bool is_abandoned() const { return forward_.backend->is_abandoned(); }
  bool may_abandon() const { return forward_.backend->may_abandon(); }
  // After finish() V of a check run at its layer, [n_rows, n_kv_heads head_dim] of the host.
  Rows check_values(const step::Run& run) const;
  // Logits of the next logit rows, from the begin-th on; returns how many.
  u32 run_logits(u32 begin);
  Result<void> finish() { return forward_.backend->finish(); }
  Backend::Traffic take_traffic() { return forward_.backend->take_traffic(); }

  // Returns the summary of the i-th row of the last run_logits(): in a step that takes the best its
  // summary, else all.
  kernels::LogitsSummary summary(u32 i) const { return forward_.backend->summary(i); }
  std::span<f32> logits(u32 i) const {
    return {from_row(args_.host_logits, i).data, args_.model->spec.n_vocab};
  }

 private:
  friend class lab::Probe;

  void begin_run(step::Run run, u32 n_rows);
  void add_row(u32 token, u32 slot);

  ExecutorArgs args_{};
  step::Batch batch_{};
  ForwardArgs forward_{};
  std::span<u32> logit_rows_{};  // [rows_max]
};

}  // namespace tarn::exec
