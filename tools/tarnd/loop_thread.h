// A thread beside the event loop, for calls that wait. Its end is an event of the loop.
#pragma once

#include <event2/event.h>

#include <functional>
#include <thread>

#include "platform/cpu/ready_fd.h"

namespace tarn::daemon {

class LoopThread {
 public:
  // `on_end` is called on the loop's thread after each start(), unless join() comes first. Throws
  // Failure.
  LoopThread(event_base* base, std::function<void()> on_end);
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;
  ~LoopThread();

  void start(std::function<void()> work);  // only if it is not busy
  bool is_busy() const { return thread_.joinable(); }
  void join();

 private:
  static void on_ready(evutil_socket_t, short, void* self);

  ReadyFd ended_;
  std::function<void()> on_end_;
  event* event_ = nullptr;
  std::thread thread_;
};

}  // namespace tarn::daemon
