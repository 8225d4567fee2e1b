// platform/cpu/worker_pool.h
//
// A fixed set of threads that run one task list at a time. The caller's thread is worker 0. Tasks
// are claimed one after another from a shared counter, so a worker whose core is busy elsewhere
// delays only the task it holds; waiting spins for a short, bounded time and then sleeps on a
// futex.
//
//   thread       run() from one thread only (the engine's), and not from inside a task
//   determinism  which worker runs a task is not fixed: a task's result may depend on its index
//   only memory       none but the threads' stacks after a failed assert in a task its thread is
//   parked for ever: run() and stop() then never return
//
// Napkin: a token takes about 300 runs, so a run may cost a few microseconds where a task takes 20.
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <type_traits>

#include "platform/base/assert.h"
#include "platform/base/result.h"
#include "platform/base/types.h"
#include "platform/cpu/os_thread.h"

namespace tarn {

inline constexpr u32 kWorkersMax = 64;
inline constexpr u32 kTasksMax = (1u << 24) - 1;  // of one run

class WorkerPool {
 public:
  struct Options {
    u32 n_workers = 1;            // the caller included; 1 starts no thread
    std::span<const u32> cpus{};  // cpu of worker i is cpus[i % size]; empty: not pinned
    bool pin_caller = false;      // to cpus[0], for good; a host's own thread is not ours to pin
    const FatalSink* sink = nullptr;  // installed on every started thread; borrowed
  };
  using Task = void (*)(void* context, u32 task_idx, u32 worker_idx);
  // What the caller does every few milliseconds while it waits for tasks of others.
  struct Waiting {
    void (*look)(void* context);  // nullptr: it sleeps
    void* context;
  };

  WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();  // joins

  // A CPU that this process may not use is an error.
  Result<void> start(const Options& options);
  void stop();  // joins; idempotent
  u32 n_workers() const { return n_workers_; }

  // Returns when all of [0, n_tasks) have run. Everything the tasks wrote is visible afterwards.
  void run(u32 n_tasks, Waiting waiting, Task task, void* context);

  // The same for a callable `fn(task_idx, worker_idx)`.
  template <class Fn>
  void run(u32 n_tasks, Waiting waiting, Fn&& fn) {
    run(
        n_tasks, waiting,
        [](void* context, u32 task_idx, u32 worker_idx) {
          (*static_cast<std::remove_reference_t<Fn>*>(context))(task_idx, worker_idx);
        },
        &fn);
  }
  template <class Fn>
  void run(u32 n_tasks, Fn&& fn) {
    run(n_tasks, Waiting{}, fn);
  }

 private:
  // Apart from each other, so that the workers who look at one do not slow down the other.
  static constexpr u64 kLineBytes = 64;

  struct Thread {
    WorkerPool* pool = nullptr;
    u32 worker_idx = 0;
    OsThread os{};
  };

  static void thread_main(void* thread);
  void serve(u32 worker_idx);
  bool has_work_or_stop() const;
  void sleep_until_work();
  void wake_workers(u32 n_tasks);
  void run_claimed(u32 worker_idx);
  void wait_for_stragglers(u32 n_tasks, Waiting waiting);

  // The ticket is {run number: 40 bits, tasks not yet claimed: 24 bits}. A task is claimed by
  // counting it down, which fails if the run has changed meanwhile: a worker that comes late cannot
  // take a task of the next run for one of the last. (A run number comes again after 10 years of
  // 3,000 a second.)
  alignas(kLineBytes) std::atomic<u64> ticket_{0};
  // What is run. Written only while nothing is left to claim; see run_claimed() for why that is
  // enough.
  std::atomic<Task> task_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<u32> n_tasks_{0};
  // Tasks of this run that have ended; the caller sleeps on it.
  alignas(kLineBytes) std::atomic<u32> n_done_{0};
  std::atomic<u32> caller_sleeps_{0};
  // What idle workers sleep on: it changes whenever somebody has to wake.
  alignas(kLineBytes) std::atomic<u32> wake_word_{0};
  std::atomic<u32> n_sleeping_{0};
  std::atomic<bool> stopping_{false};

  alignas(kLineBytes) u32 n_workers_ = 0;
  u64 spin_ns_ = 0;
  bool is_running_ = false;
  const FatalSink* sink_ = nullptr;
  std::array<Thread, kWorkersMax> threads_{};  // [1, n_workers_)
};

}  // namespace tarn
