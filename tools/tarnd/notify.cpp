#include "tools/tarnd/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace tarn::daemon {

u64 number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  u64 value = 0;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
  return value;
}

Notify::Notify() {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path != nullptr && (path[0] == '/' || path[0] == '@')) path_ = path;
  const u64 pid = number_in("WATCHDOG_PID");
  constexpr u64 kMargin = 2;
  if (pid == 0 || pid == static_cast<u64>(getpid())) {
    watchdog_us_ = number_in("WATCHDOG_USEC") / kMargin;
  }
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
}

void Notify::send(const std::string& message) const {
  sockaddr_un to{};
  if (path_.empty() || path_.size() >= sizeof to.sun_path) return;
  to.sun_family = AF_UNIX;
  path_.copy(to.sun_path, path_.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const auto n = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  sendto(fd, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&to), n);
  ::close(fd);
}

}  // namespace tarn::daemon
