// The sockets that the daemon listens on: paths, addresses, and those that systemd passes.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::daemon {

// Owns its descriptor and, if it made one, the socket's file.
class Listener {
 public:
  Listener(int listening, bool tcp, std::string shown, std::string file = {})
      : fd(listening), is_tcp(tcp), name(std::move(shown)), path_(std::move(file)) {}
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  int fd;
  bool is_tcp;
  std::string name;  // as in the configuration

 private:
  std::string path_;  // removed at the end
};

struct ListenRules {
  u32 socket_mode = 0660;
  std::string socket_group = {};  // "": the process' own
  u32 backlog = 64;
  bool beyond_loopback = false;
};

// unix:///path, tcp://address:port. Throws Failure: exit code 78 for what the rules refuse, 74 for
// what the system does. A path's folder belongs to this user or to root, others may not write to
// it, and it is no symbolic link; a socket that nobody listens on is replaced.
Listener open_listener(const std::string& address, const ListenRules& rules);
// Those of LISTEN_FDS, which is removed from the environment.
std::vector<Listener> passed_listeners(const ListenRules& rules);

}  // namespace tarn::daemon
