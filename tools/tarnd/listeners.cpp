#include "tools/tarnd/listeners.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tools/support/exit_code.h"
#include "tools/tarnd/notify.h"

namespace tarn::daemon {
namespace {

using tools::Failure;

constexpr std::string_view kUnix = "unix://", kTcp = "tcp://";
constexpr int kFirstPassedFd = 3;  // sd_listen_fds(3)

[[noreturn]] void refuse(const std::string& address, const std::string& why) {
  throw Failure{tools::kExitRefused, "daemon.listen = " + address + ": " + why};
}
[[noreturn]] void system_failed(const std::string& address, const char* what) {
  throw Failure{tools::kExitIo,
                "daemon.listen = " + address + ": " + what + ": " + std::strerror(errno)};
}

// Closes a descriptor unless it is released.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

void check_folder(const std::string& address, const std::string& folder) {
  struct stat facts {};
  if (lstat(folder.c_str(), &facts) != 0) system_failed(address, "its folder");
  if (!S_ISDIR(facts.st_mode)) refuse(address, folder + " is no folder (or a symbolic link)");
  if (facts.st_uid != geteuid() && facts.st_uid != 0) {
    refuse(address, folder + " belongs to another user, who could replace the socket");
  }
  const bool others_write = (facts.st_mode & S_IWOTH) != 0 && (facts.st_mode & S_ISVTX) == 0;
  if (others_write) refuse(address, "everybody may write to " + folder);
}

sockaddr_un address_of(const std::string& address, const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (path.size() >= sizeof at.sun_path) refuse(address, "the path is longer than 107 bytes");
  path.copy(at.sun_path, path.size());
  return at;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Holds the folder's lock, so that no other daemon looks at its sockets, or makes one, meanwhile.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : fd_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // A reader of the folder may hold it, so this does not wait for ever.
    constexpr int kTries = 200;
    for (int i = 0; fd_.get() >= 0 && i < kTries && !is_held_; ++i) {
      is_held_ = flock(fd_.get(), LOCK_EX | LOCK_NB) == 0;
      if (!is_held_ && errno != EWOULDBLOCK) return;
      if (!is_held_) usleep(10'000);
    }
  }
  bool is_held() const { return is_held_; }

 private:
  Fd fd_;
  bool is_held_ = false;
};

std::optional<FileId> file_at(const std::string& path) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) return std::nullopt;
  return FileId{facts.st_dev, facts.st_ino};
}

// Removes a socket that no process listens on.
void remove_stale(const std::string& address, const std::string& path, const sockaddr_un& at) {
  struct stat facts {};
  if (lstat(path.c_str(), &facts) != 0) {
    if (errno == ENOENT) return;
    system_failed(address, "lstat");
  }
  if (!S_ISSOCK(facts.st_mode)) {
    refuse(address, "a file that is no socket is there: remove it, or give another path");
  }
  const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (probe.get() < 0) system_failed(address, "socket");
  const int result = connect(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
  // EAGAIN: its backlog is full. Only ECONNREFUSED says that no process listens.
  if (result == 0 || errno != ECONNREFUSED) refuse(address, "another program listens there");
  if (unlink(path.c_str()) != 0) system_failed(address, "removing a stale socket");
}

std::optional<gid_t> group_id(const std::string& address, const std::string& name) {
  if (name.empty()) return std::nullopt;
  const group* const found = getgrnam(name.c_str());
  if (found == nullptr) refuse(address, "there is no group " + name);
  return found->gr_gid;
}

Listener open_unix(const std::string& address, const ListenRules& rules) {
  const std::string path = address.substr(kUnix.size());
  if (!path.starts_with('/')) refuse(address, "give an absolute path: unix:///run/tarn/tarn.sock");
  const std::string folder = folder_of(path);
  check_folder(address, folder);
  const sockaddr_un at = address_of(address, path);
  const FolderLock lock(folder);
  if (!lock.is_held())
    system_failed(address, "locking its folder, which another program has locked");
  remove_stale(address, path, at);
  const std::optional<gid_t> group = group_id(address, rules.socket_group);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) system_failed(address, "socket");
  // Between bind and chmod the owner alone may connect.
  const mode_t before = umask(0177);
  const int bound = bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at);
  umask(before);
  if (bound != 0) system_failed(address, "bind");
  Listener listener(fd.release(), /*tcp=*/false, address);
  const std::optional<FileId> file = file_at(path);
  if (!file) system_failed(address, "the socket's file");
  listener.own_file(path, *file);
  const uid_t same_owner = ~uid_t{0};
  if (group && lchown(path.c_str(), same_owner, *group) != 0) system_failed(address, "chown");
  if (chmod(path.c_str(), rules.socket_mode) != 0) system_failed(address, "chmod");
  if (listen(listener.fd, static_cast<int>(rules.backlog)) != 0) system_failed(address, "listen");
  return listener;
}

struct TcpAddress {
  sockaddr_storage bytes{};
  socklen_t n_bytes = 0;
};

std::optional<TcpAddress> parse_tcp(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  u16 port = 0;
  const std::string_view digits = text.substr(colon + 1);
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (read.ec != std::errc{} || read.ptr != digits.data() + digits.size()) return std::nullopt;
  std::string host(text.substr(0, colon));
  TcpAddress address;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_port = htons(port);
    if (inet_pton(AF_INET6, host.c_str(), &at.sin6_addr) != 1) return std::nullopt;
    std::memcpy(&address.bytes, &at, sizeof at);
    address.n_bytes = sizeof at;
    return address;
  }
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &at.sin_addr) != 1) return std::nullopt;
  std::memcpy(&address.bytes, &at, sizeof at);
  address.n_bytes = sizeof at;
  return address;
}

bool is_loopback(const sockaddr_storage& at) {
  if (at.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&at)->sin6_addr);
  }
  return (ntohl(reinterpret_cast<const sockaddr_in*>(&at)->sin_addr.s_addr) >> 24) == 127;
}

bool is_127_0_0_1(const sockaddr_storage& at) {
  return at.ss_family == AF_INET &&
         ntohl(reinterpret_cast<const sockaddr_in*>(&at)->sin_addr.s_addr) == INADDR_LOOPBACK;
}

void check_tcp(const std::string& address, const sockaddr_storage& at, const ListenRules& rules) {
  if (!is_loopback(at) && !rules.beyond_loopback) {
    refuse(address,
           "other machines could connect: set daemon.beyond_loopback = true too, if that is meant");
  }
  if (!rules.has_keys && !is_127_0_0_1(at)) {
    refuse(address,
           "without keys, TCP is served on 127.0.0.1 alone: name a file with LABEL KEY a line "
           "(--keys-file, daemon.keys_file)");
  }
}

// The port that the socket got, where 0 was asked for.
std::string port_text(int fd) {
  sockaddr_storage at{};
  socklen_t n = sizeof at;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &n) != 0) return "0";
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&at);
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&at);
  return std::to_string(ntohs(at.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port));
}

Listener open_tcp(const std::string& address, const ListenRules& rules) {
  const auto at = parse_tcp(std::string_view(address).substr(kTcp.size()));
  if (!at) refuse(address, "give an address and a port: tcp://127.0.0.1:8080, tcp://[::1]:8080");
  check_tcp(address, at->bytes, rules);
  Fd fd(socket(at->bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) system_failed(address, "socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at->bytes), at->n_bytes) != 0) {
    system_failed(address, "bind");
  }
  if (listen(fd.get(), static_cast<int>(rules.backlog)) != 0) system_failed(address, "listen");
  const std::string name = address.substr(0, address.rfind(':') + 1) + port_text(fd.get());
  return {fd.release(), /*tcp=*/true, name};
}

Listener passed(int fd, const ListenRules& rules) {
  Listener listener(fd, /*tcp=*/false, "fd:" + std::to_string(fd));
  listener.is_passed = true;
  const std::string& name = listener.name;
  sockaddr_storage at{};
  socklen_t n = sizeof at;
  int listens = 0, type = 0;
  socklen_t n_int = sizeof listens;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &n) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_int) != 0 || listens == 0 ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n_int) != 0 || type != SOCK_STREAM) {
    refuse(name, "LISTEN_FDS names a descriptor that is no listening stream socket");
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (at.ss_family == AF_UNIX) {
    const auto* path = reinterpret_cast<const sockaddr_un*>(&at)->sun_path;
    if (n <= offsetof(sockaddr_un, sun_path) || path[0] == '\0') {
      refuse(name, "an abstract socket has no permissions: give it a path");
    }
    return listener;
  }
  if (at.ss_family != AF_INET && at.ss_family != AF_INET6) refuse(name, "unknown address family");
  listener.is_tcp = true;
  check_tcp(name, at, rules);
  return listener;
}

}  // namespace

Listener::Listener(Listener&& other) noexcept
    : fd(std::exchange(other.fd, -1)),
      is_tcp(other.is_tcp),
      is_passed(other.is_passed),
      name(std::move(other.name)),
      path_(std::exchange(other.path_, {})),
      file_(other.file_) {}

// The file goes first: its number may name another file once this socket is closed.
Listener::~Listener() {
  remove_file();
  if (fd >= 0) ::close(fd);
}

void Listener::own_file(std::string path, FileId file) {
  path_ = std::move(path);
  file_ = file;
}

void Listener::remove_file() {
  if (path_.empty()) return;
  const FolderLock lock(folder_of(path_));
  if (file_at(path_) == file_) unlink(path_.c_str());
  path_.clear();
}

Listener open_listener(const std::string& address, const ListenRules& rules) {
  if (address.starts_with(kUnix)) return open_unix(address, rules);
  if (address.starts_with(kTcp)) return open_tcp(address, rules);
  refuse(address, "give unix:///path or tcp://address:port");
}

std::vector<Listener> passed_listeners(const ListenRules& rules) {
  std::vector<Listener> listeners;
  constexpr u64 kFdsMax = 16;
  const char* const text = std::getenv("LISTEN_FDS");
  const std::string count = text == nullptr ? "" : text;
  const bool is_ours = number_in("LISTEN_PID") == static_cast<u64>(getpid());
  for (const char* name : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) unsetenv(name);
  if (!is_ours || count.empty()) return listeners;
  u64 n = 0;
  const auto read = std::from_chars(count.data(), count.data() + count.size(), n);
  if (read.ec != std::errc{} || read.ptr != count.data() + count.size() || n > kFdsMax) {
    refuse("LISTEN_FDS", "it must be a number of sockets, 0 to 16");
  }
  for (u64 i = 0; i < n; ++i) {
    listeners.push_back(passed(kFirstPassedFd + static_cast<int>(i), rules));
  }
  return listeners;
}

}  // namespace tarn::daemon
