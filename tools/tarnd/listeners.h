// The sockets that the daemon listens on: paths, addresses, and those that systemd passes.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::daemon {

// Which file a path names.
struct FileId {
  u64 device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};

// Owns its descriptor and, if it made one, the socket's file.
class Listener {
 public:
  Listener(int listening, bool tcp, std::string shown) noexcept
      : fd(listening), is_tcp(tcp), name(std::move(shown)) {}
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  // The socket at this path is its own, and goes with it.
  void own_file(std::string path, FileId file);
  // Removes the socket's file, unless another one has its path by now.
  void remove_file();

  int fd;
  bool is_tcp;
  bool is_passed = false;  // by systemd, which keeps it
  std::string name;        // as in the configuration

 private:
  std::string path_;  // "": there is none
  FileId file_;
};

struct ListenRules {
  u32 socket_mode = 0660;
  std::string socket_group = {};  // "": the process' own
  u32 backlog = 64;
  bool beyond_loopback = false;
  bool has_keys = false;  // TCP without keys is 127.0.0.1's alone
};

// unix:///path, tcp://address:port. Throws Failure: exit code 78 for what the rules refuse, 74 for
// what the system does. A path's folder belongs to this user or to root, others may not write to
// it, and it is no symbolic link. A socket that no process listens on is replaced; nothing else is.
// Daemons that start or end in one folder wait for each other (flock on the folder).
Listener open_listener(const std::string& address, const ListenRules& rules);
// Returns the sockets of LISTEN_FDS, which is removed from the environment.
std::vector<Listener> passed_listeners(const ListenRules& rules);

}  // namespace tarn::daemon
