// The ops of backend.h on the CPU, but for attention. Every op is cut into tasks for the worker
// pool. A task's result depends on its rows and columns alone, so the number of workers and the
// claiming order change nothing.
//
//   memory   scratch that the plan set aside; the backend owns none
//   thread   the engine's, which is worker 0 of the pool
#pragma once

#include <algorithm>
#include <atomic>
#include <span>

#include "kernels/cpu_table.h"
#include "platform/base/checked.h"
#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "platform/gpu/device.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/cpu/attention_memory.h"
#include "runtime/exec/step_memory.h"
#include "runtime/kv/parts/part_source.h"
#include "runtime/model/model_spec.h"

namespace tarn::exec {

struct CpuBackendArgs {
  const kernels::CpuTable* table = nullptr;
  WorkerPool* workers = nullptr;
  Clock* clock = nullptr;  // of rows that read chosen slots
  const model::ModelSpec* spec = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  u32 page_tokens = 0;
  u32 rows_max = 0;
  CpuStepMemory memory{};
  AttentionMemory attention{};
  kv::PartSource* parts = nullptr;
  Device* watched = nullptr;  // whose errors are the steps'; nullptr: none's are
};

class CpuOps : public Backend {
 public:
  void init(const CpuBackendArgs& args) { args_ = args; }

  const f64* inv_freq() const { return args_.memory.rows.inv_freq.data(); }
  const char* isa() const override { return args_.table->isa; }
  void begin_step(const step::Batch& batch) override;
  void note_kept_groups(const step::Batch&) const override {}  // there is no device
  bool may_abandon() const override { return true; }
  bool is_abandoned() const override { return abandoned_.load(std::memory_order_relaxed); }
  void embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) override;
  void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) override;
  void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) override;
  void project(Rows x, u32 n, std::span<const Projection> projections) override;
  void project_add(const ResidualProjection& projection, u32 n) override;
  void rope(Rows q, Rows k, u32 n) override;
  void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) override;
  void gather(const step::Batch& batch, Rows x, u32 d, Rows out) override;
  void fetch(Rows from, u32 n, u64 d, Rows to) override;
  void summarize(Rows logits, u32 n, u32 d) override;
  kernels::LogitsSummary summary(u32 row) const override;
  Result<void> finish() override;

 protected:
  static constexpr u32 kRowsPerTask = 16;
  // Calls fn(row_begin, n_rows) for all of [0, n), on the pool if there is enough to do.
  template <class Fn>
  void for_rows(u32 n, u32 rows_per_task, Fn&& fn) {
    const u32 n_tasks = static_cast<u32>(ceil_div(n, rows_per_task));
    if (n_tasks <= 1) {
      if (n > 0) fn(0u, n);
      return;
    }
    args_.workers->run(n_tasks, [&](u32 task_idx, u32) {
      const u32 begin = task_idx * rows_per_task;
      fn(begin, std::min(rows_per_task, n - begin));
    });
  }
  // Asked by the tasks that take long, before they begin, and between their parts. Worker 0, the
  // engine's thread, asks the step's host; also while it waits for the others' tasks.
  bool skips_task(u32 worker_idx);
  WorkerPool::Waiting looking();

  CpuBackendArgs args_{};
  Traffic traffic_{};

 private:
  bool goes_on(step::Pause pause);
  void quantize(Rows x, u32 k, u32 n);
  void rope_heads(Rows x, u32 n, u32 n_heads);

  Rows summarized_{};  // rows of as many logits as their stride
  step::StepHost* host_ = nullptr;
  std::atomic<bool> abandoned_{false};  // no order: a late look costs a task
};

}  // namespace tarn::exec
