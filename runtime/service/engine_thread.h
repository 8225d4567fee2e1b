// The thread that drives an engine: carries out calls one after another, and steps between them
// while there is something to do.
#pragma once

#include "runtime/service/common.h"

namespace tarn::service {

class EngineThread {
 public:
  explicit EngineThread(Common& common) : common_(common) {}
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Where its failed assertions go, and its workers'.
  const FatalSink* sink();
  void at_end(void (*fn)(void* context), void* context) {
    at_end_ = fn;
    at_end_context_ = context;
  }
  Result<void> start(std::span<const u32> cpus);
  bool is_running() const { return thread_.running(); }
  void join() { thread_.join(); }
  void detach() { thread_.detach(); }

 private:
  static void on_assert(void* self, const AssertSite& site);
  void loop();
  bool run_call(Lock& lock);
  void run(Request* request, Lock& lock);
  void wait_for_work(Lock& lock);
  void note();

  Common& common_;
  FatalSink sink_{};
  void (*at_end_)(void* context) = nullptr;
  void* at_end_context_ = nullptr;
  OsThread thread_{};
};

}  // namespace tarn::service
