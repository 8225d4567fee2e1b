// platform/cpu/worker_pool.h
//
// A fixed set of threads that run one task list at a time. The caller's thread is worker 0. Tasks
// are claimed one after another from a shared counter, so a worker whose core is busy elsewhere
// delays only the task it holds; waiting spins for a short, bounded time and then sleeps on a futex.
//
//   thread       run() from one thread only (the engine's); tasks from any worker
//   determinism  which worker runs a task is not fixed: a task's result may depend on its index only
#pragma once

#include <span>

#include "platform/base/assert.h"
#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

inline constexpr u32 kWorkersMax = 64;

class WorkerPool {
 public:
  struct Options {
    u32 n_workers = 1;             // the caller included; 1 starts no thread
    std::span<const u32> cpus{};   // cpu of worker i is cpus[i % size]; empty: not pinned
    bool pin_caller = false;       // the caller is a host's thread unless the engine says otherwise
    const FatalSink* sink = nullptr;  // installed on every started thread; borrowed
  };
  using Task = void (*)(void* context, u32 task_idx, u32 worker_idx);

  WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();  // joins

  Result<void> start(const Options& options);
  void stop();  // joins; idempotent
  u32 n_workers() const { return n_workers_; }

  // Returns when all of [0, n_tasks) have run. Everything the tasks wrote is visible afterwards.
  void run(u32 n_tasks, Task task, void* context);

  // The same for a callable `fn(task_idx, worker_idx)`.
  template <class Fn>
  void run(u32 n_tasks, Fn&& fn) {
    run(n_tasks, [](void* context, u32 task_idx, u32 worker_idx) {
      (*static_cast<std::remove_reference_t<Fn>*>(context))(task_idx, worker_idx);
    }, &fn);
  }

 private:
  struct Shared;
  u32 n_workers_ = 0;
  Shared* shared_ = nullptr;  // owned
};

}  // namespace tarn
