// A fixed set of threads that run one task list at a time. The caller's thread is worker 0. Tasks
// are claimed one after another from a shared counter, so a worker whose core is busy elsewhere
// delays only the task it holds; waiting spins for a short, bounded time and then sleeps on a
// futex.
//
//   thread       run() from one thread only (the engine's), and not from inside a task
//   determinism  any worker may run a task, so a task's result may depend on its index only
//   memory       none but the threads' stacks
//   bugs         a failed assert in a task parks its thread for ever; run() and stop() never return
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
inline constexpr u32 kTasksMax = (1u << 24) - 1;  // in one run

class WorkerPool {
 public:
  struct Options {
    u32 n_workers = 1;                // the caller included; 1 starts no thread
    std::span<const u32> cpus{};      // cpu of worker i is cpus[i % size]; empty: not pinned
    bool pin_caller = false;          // pins it to cpus[0], for good; never for a host's own thread
    const FatalSink* sink = nullptr;  // installed on every started thread; borrowed
  };
  using Task = void (*)(void* context, u32 task_idx, u32 worker_idx);
  // A call that the caller makes every few milliseconds while it waits for the workers' tasks.
  struct Waiting {
    void (*look)(void* context);  // nullptr: it sleeps
    void* context;
  };

  WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();  // joins

  // Starts the threads. A CPU that this process may not use is an error.
  Result<void> start(const Options& options);
  void stop();  // joins; idempotent
  u32 n_workers() const { return n_workers_; }

  // Returns when all of [0, n_tasks) have run. Everything the tasks wrote is visible afterwards.
  void run(u32 n_tasks, Waiting waiting, Task task, void* context);

  // Runs a callable `fn(task_idx, worker_idx)` in the same way.
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
  // The words below lie on lines of their own, so that spinning on one does not slow the other
  // down.
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

  // The ticket is {run number: 40 bits, tasks not yet claimed: 24 bits}. A claim counts it down,
  // and fails if the run has changed meanwhile. So a late worker cannot mistake a task of the next
  // run for one of the last run. (At 3,000 runs a second a run number repeats after 10 years.)
  alignas(kLineBytes) std::atomic<u64> ticket_{0};
  // The task of this run. Written only while nothing is left to claim; run_claimed() says why that
  // is enough.
  std::atomic<Task> task_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<u32> n_tasks_{0};
  // Tasks of this run that have ended; the caller sleeps on it.
  alignas(kLineBytes) std::atomic<u32> n_done_{0};
  std::atomic<u32> caller_sleeps_{0};
  // Idle workers sleep on this word; it changes to wake them.
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
