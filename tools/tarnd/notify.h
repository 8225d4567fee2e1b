// The protocol of sd_notify(3), by hand: one datagram to NOTIFY_SOCKET per message.
#pragma once

#include <string>

#include "platform/base/types.h"

namespace tarn::daemon {

// A decimal number in the environment; 0 if there is none.
u64 number_in(const char* variable);

class Notify {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment.
  Notify();
  // Sends "READY=1", "STOPPING=1", "STATUS=..."; several in one, with line breaks. Does nothing
  // without a listener.
  void send(const std::string& message) const;
  // The time between two "WATCHDOG=1"; 0: none are asked for.
  u64 watchdog_us() const { return watchdog_us_; }

 private:
  std::string path_;
  u64 watchdog_us_ = 0;
};

}  // namespace tarn::daemon
