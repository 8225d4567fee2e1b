// A thread of the system, started with all signals blocked (they belong to the host) and, if asked,
// on given CPUs. Unlike std::thread, a refusal by the system is a Result.
#pragma once

#include <pthread.h>

#include <span>

#include "platform/base/result.h"

namespace tarn {

class OsThread {
 public:
  OsThread() = default;
  OsThread(const OsThread&) = delete;
  OsThread& operator=(const OsThread&) = delete;
  ~OsThread();  // joins

  // Runs body(context). `name` (static, at most 15 bytes) shows in the system's tools. An empty
  // `cpus` leaves the affinity as it is; a refused affinity is not an error. stack_bytes 0: the
  // system's default (usually 8 MiB of address space).
  struct Task {
    void (*body)(void* context) = nullptr;
    void* context = nullptr;
    const char* name = "tarn";
    std::span<const u32> cpus{};
    u64 stack_bytes = 0;
  };
  Result<void> start(const Task& task);
  bool running() const { return running_; }
  void join();    // does nothing if it is not running
  void detach();  // lets the thread run on by itself

 private:
  static void* entry(void* self);

  pthread_t thread_{};
  bool running_ = false;
  void (*body_)(void* context) = nullptr;
  void* context_ = nullptr;
};

}  // namespace tarn
