// How the CPU's ops are cut into tasks for the worker pool, and asked to stop. A task's result
// depends on its rows and columns alone, so the number of workers and the claiming order change
// nothing.
//
//   memory   scratch that the plan set aside; the backend owns none
//   thread   the engine's, which is worker 0 of the pool
#pragma once

#include <algorithm>
#include <atomic>

#include "kernels/cpu_table.h"
#include "platform/base/checked.h"
#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/cpu/attention_memory.h"
#include "runtime/exec/cpu/watched_device.h"
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
  WatchedDevice watched{};
};

class CpuTasks {
 public:
  static constexpr u32 kRowsPerTask = 16;
  // Calls fn(row_begin, n_rows) for all of [0, n), on the pool if there is enough to do.
  template <class Fn>
  void for_rows(u32 n, u32 rows_per_task, Fn&& fn) {
    const u32 n_tasks = static_cast<u32>(ceil_div(n, rows_per_task));
    if (n_tasks <= 1) {
      if (n > 0) fn(0u, n);
      return;
    }
    workers_->run(n_tasks, [&](u32 task_idx, u32) {
      const u32 begin = task_idx * rows_per_task;
      fn(begin, std::min(rows_per_task, n - begin));
    });
  }
  void init(WorkerPool* workers) { workers_ = workers; }
  void begin_step(step::StepHost* host);
  // Returns whether the step's host has said no: tasks do nothing until the next step begins.
  bool is_abandoned() const { return abandoned_.load(std::memory_order_relaxed); }
  // Asks the host, unless it has said no. On the engine's thread.
  bool goes_on(step::Pause pause);
  // Calls fn(task_idx, worker_idx) for all tasks that take long; the engine's thread asks the host
  // while it waits for the others'.
  template <class Fn>
  void run(u32 n_tasks, Fn&& fn) {
    workers_->run(n_tasks, looking(), fn);
  }
  // Returns whether a task ends early: asked by one that takes long, before it begins, and between
  // its parts.
  bool skips(u32 worker_idx);

 private:
  WorkerPool::Waiting looking();

  WorkerPool* workers_ = nullptr;
  step::StepHost* host_ = nullptr;
  std::atomic<bool> abandoned_{false};  // no order: a late look costs a task
};

}  // namespace tarn::exec
