// libevent's loop, with libevent's own habits set: its warnings are lines of the daemon's log, a
// fatal error of it ends the process with exit code 70, and no variable of the environment changes
// how it waits.
#pragma once

#include <event2/event.h>

namespace tarn::daemon {

class EventLoop {
 public:
  // Throws Failure if there is no memory or no descriptor for it.
  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  event_base* base = nullptr;
};

}  // namespace tarn::daemon
