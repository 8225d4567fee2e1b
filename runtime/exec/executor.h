// Computes steps: the backend, the buffers of a step, and its batch.
//
//   a step     clear(), add() each run; run_layers(), finish(); then run_logits(), finish() until
//              all logit rows are done
//   errors     finish() tells the device's. Nothing that the step computed may be believed then
//   memory     the plan's, lent until close()
//   thread     the engine's
#pragma once

#include "runtime/exec/cpu/cpu_backend.h"
#include "runtime/exec/gpu/placement.h"
#include "runtime/model/embedding_file.h"

namespace tarn::lab {
class Probe;
}

namespace tarn::exec {

struct ExecutorArgs {
  bool on_gpu = false;
  u32 logit_rows_max = 0;
  model::LoadedModel* model = nullptr;
  Rows host_logits{};  // [logit_rows_max, n_vocab]
  // On a CPU: its backend, without the step's memory, which lies in `activations`; and a GPU whose
  // errors are the steps'.
  CpuBackendArgs cpu{};
  std::span<std::byte> activations{};
  Device* watched = nullptr;
};

class Executor {
 public:
  // On a GPU after gpu().reserve(), and after the weights.
  Result<void> open(const ExecutorArgs& args);
  void close();
  bool on_gpu() const { return forward_.backend == &gpu_.backend(); }
  GpuPlacement& gpu() { return gpu_; }
  const GpuPlacement& gpu() const { return gpu_; }
  Result<void> capture_graphs();
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
  // The rows' embeddings, where they are in the file.
  Result<void> read_embeddings();
  // Runs that have chunks of their KV on the device need no frames for them.
  void note_kept_groups();
  void run_layers(step::StepHost* host);
  // Whether the host has said no, and the layers mean nothing.
  bool is_abandoned() const { return forward_.backend->is_abandoned(); }
  // After finish() V of the check run at its layer, [n_rows, n_kv_heads head_dim] of the host.
  Rows check_values(const step::Run& run) const {
    const Rows fetched = forward_.host_values;
    return fetched.data != nullptr ? fetched : exec::check_values(forward_, run.row_begin);
  }
  // Logits of the next logit rows, from the begin-th on; returns how many.
  u32 run_logits(u32 begin);
  Result<void> finish();
  Backend::Traffic take_traffic() { return forward_.backend->take_traffic(); }

  // Of the i-th row of the last run_logits(): in a step that takes the best its summary, else all.
  kernels::LogitsSummary summary(u32 i) const { return forward_.backend->summary(i); }
  std::span<f32> logits(u32 i) const {
    return {from_row(args_.host_logits, i).data, args_.model->spec.n_vocab};
  }

 private:
  friend class lab::Probe;

  void open_cpu();
  Result<void> open_gpu();
  void place_buffers(const StepMemory& memory);
  void place_rows(const StepRows& rows);
  void begin_run(step::Run run, u32 n_rows);
  void add_row(u32 token, u32 slot);
  ExecutorArgs args_{};
  CpuBackend cpu_{};
  GpuPlacement gpu_{};
  step::Batch batch_{};
  ForwardArgs forward_{.backend = &cpu_};
  std::span<step::Run> runs_{};  // [rows_max]
  std::span<u32> logit_rows_{};  // [rows_max]
  Rows embedded_{};              // [rows_max, d_model] of the host
  Rows logits_{};                // [logit_rows_max, n_vocab], the backend's
  step::KvWatch watch_{};        // lab::Probe's
};

}  // namespace tarn::exec
