// Goal    A path is taken only where nobody else could replace it; a stale socket is replaced, a
//         live one and other files are not; a listener removes its own file alone; of many that
//         start at once one has the path; a TCP address is the loopback's unless told.
// Method  Folders and files of each kind; real sockets; child processes.
#include "tools/tarnd/listeners.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "tools/support/exit_code.h"

namespace tarn::daemon::listeners_test {
namespace {

// Short enough for a socket's address.
class SocketDir {
 public:
  SocketDir() {
    char name[] = "/tmp/tarnd_test.XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~SocketDir() { REQUIRE(std::system(("rm -rf " + path).c_str()) == 0); }
  SocketDir(const SocketDir&) = delete;
  SocketDir& operator=(const SocketDir&) = delete;
  std::string address(const std::string& name = "s") const { return "unix://" + path + "/" + name; }

  std::string path;
};

int refused(const std::string& address, const ListenRules& rules = {}) {
  try {
    open_listener(address, rules);
    return 0;
  } catch (const tools::Failure& failure) {
    return failure.code;
  }
}

bool connects(const std::string& path) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  const bool does = connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  close(fd);
  return does;
}

TEST_CASE("a socket has its mode, and goes with its listener") {
  const SocketDir dir;
  for (const u32 mode : {0600u, 0660u, 0666u}) {
    const Listener listener = open_listener(dir.address(), {.socket_mode = mode});
    struct stat facts {};
    REQUIRE(stat((dir.path + "/s").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == mode);
    CHECK(connects(dir.path + "/s"));
  }
  CHECK(access((dir.path + "/s").c_str(), F_OK) != 0);
}

TEST_CASE("a stale socket is replaced, a live one is not, nor is a file") {
  const SocketDir dir;
  {
    const Listener live = open_listener(dir.address(), {});
    CHECK(refused(dir.address()) == tools::kExitRefused);
    CHECK(connects(dir.path + "/s"));
    const std::string other = dir.path + "/stale";
    CHECK(link((dir.path + "/s").c_str(), other.c_str()) == 0);
  }
  CHECK(refused(dir.address("stale")) == 0);
  std::ofstream(dir.path + "/file") << "kept";
  CHECK(refused(dir.address("file")) == tools::kExitRefused);
  CHECK(access((dir.path + "/file").c_str(), F_OK) == 0);
  CHECK(symlink("file", (dir.path + "/link").c_str()) == 0);
  CHECK(refused(dir.address("link")) == tools::kExitRefused);
}

TEST_CASE("a listener whose path has another socket, or another file, by now leaves it there") {
  const SocketDir dir;
  const std::string path = dir.path + "/s";
  auto first = std::make_unique<Listener>(open_listener(dir.address(), {}));
  REQUIRE(unlink(path.c_str()) == 0);
  auto second = std::make_unique<Listener>(open_listener(dir.address(), {}));
  first.reset();
  CHECK(connects(path));
  second->remove_file();
  CHECK(access(path.c_str(), F_OK) != 0);
  std::ofstream(path) << "kept";
  second.reset();
  CHECK(access(path.c_str(), F_OK) == 0);
}

TEST_CASE("of many that start over a stale socket one listens, and the others are refused") {
  const SocketDir dir;
  const std::string kept = dir.path + "/kept", path = dir.path + "/s";
  {
    const Listener stale = open_listener(dir.address(), {});
    REQUIRE(link(path.c_str(), kept.c_str()) == 0);
  }
  constexpr int kRounds = 10, kRacers = 6;
  for (int round = 0; round < kRounds; ++round) {
    REQUIRE(link(kept.c_str(), path.c_str()) == 0);
    pid_t racers[kRacers];
    for (pid_t& racer : racers) {
      racer = fork();
      if (racer != 0) continue;
      const int code = refused(dir.address());  // 0: it listened, and has ended
      _exit(code);
    }
    int n_refused = 0;
    for (const pid_t racer : racers) {
      int status = 0;
      REQUIRE(waitpid(racer, &status, 0) == racer);
      n_refused += WEXITSTATUS(status) != 0 ? 1 : 0;
      CHECK((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == tools::kExitRefused));
    }
    CHECK(n_refused < kRacers);
    CHECK(access(path.c_str(), F_OK) != 0);  // who listened has removed its own
  }
}

TEST_CASE("a folder that another program keeps locked is refused, not waited for") {
  const SocketDir dir;
  const int held = open(dir.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(flock(held, LOCK_EX) == 0);
  CHECK(refused(dir.address()) == tools::kExitIo);
  close(held);
  CHECK(refused(dir.address()) == 0);
}

TEST_CASE("folders that others could change are refused") {
  const SocketDir dir;
  const std::string open = dir.path + "/open", sticky = dir.path + "/sticky";
  REQUIRE(mkdir(open.c_str(), 0700) == 0);
  REQUIRE(mkdir(sticky.c_str(), 0700) == 0);
  REQUIRE(chmod(open.c_str(), 0777) == 0);
  REQUIRE(chmod(sticky.c_str(), 01777) == 0);
  REQUIRE(symlink(sticky.c_str(), (dir.path + "/link").c_str()) == 0);
  CHECK(refused("unix://" + open + "/s") == tools::kExitRefused);
  CHECK(refused("unix://" + sticky + "/s") == 0);
  CHECK(refused("unix://" + dir.path + "/link/s") == tools::kExitRefused);
  CHECK(refused("unix://" + dir.path + "/none/s") == tools::kExitIo);
  if (geteuid() == 0) {
    const std::string foreign = dir.path + "/foreign";
    REQUIRE(mkdir(foreign.c_str(), 0700) == 0);
    REQUIRE(chown(foreign.c_str(), 12345, 12345) == 0);
    CHECK(refused("unix://" + foreign + "/s") == tools::kExitRefused);
  }
}

TEST_CASE("addresses") {
  struct AddressCase {
    std::string address;
    int code;
  };
  const AddressCase kCases[] = {
      {"unix://relative", tools::kExitRefused},
      {"unix://@abstract", tools::kExitRefused},
      {"unix:///tmp/" + std::string(108, 'a'), tools::kExitRefused},
      {"/tmp/x.sock", tools::kExitRefused},
      {"http://127.0.0.1:1", tools::kExitRefused},
      {"tcp://127.0.0.1", tools::kExitRefused},
      {"tcp://127.0.0.1:65536", tools::kExitRefused},
      {"tcp://localhost:0", tools::kExitRefused},
      {"tcp://0.0.0.0:0", tools::kExitRefused},
      {"tcp://127.0.0.1:0", 0},
      {"tcp://127.0.0.2:0", 0},
  };
  for (const AddressCase& each : kCases) {
    CAPTURE(each.address);
    CHECK(refused(each.address, {.has_keys = true}) == each.code);
  }
  CHECK(refused("tcp://0.0.0.0:0", {.beyond_loopback = true, .has_keys = true}) == 0);
}

TEST_CASE("without keys, TCP is served on 127.0.0.1 alone") {
  for (const bool beyond : {false, true}) {
    for (const char* address : {"tcp://127.0.0.2:0", "tcp://[::1]:0", "tcp://0.0.0.0:0"}) {
      CAPTURE(address);
      CHECK(refused(address, {.beyond_loopback = beyond}) == tools::kExitRefused);
    }
    CHECK(refused("tcp://127.0.0.1:0", {.beyond_loopback = beyond}) == 0);
  }
}

TEST_CASE("sockets that are passed") {
  const SocketDir dir;
  REQUIRE(unsetenv("LISTEN_PID") == 0);
  CHECK(passed_listeners({}).empty());
  setenv("LISTEN_FDS", "1", 1);
  setenv("LISTEN_PID", "1", 1);  // another process'
  CHECK(passed_listeners({}).empty());
  CHECK(getenv("LISTEN_FDS") == nullptr);
  const int saved = fcntl(3, F_DUPFD_CLOEXEC, 10);  // what this program has there
  {
    Listener mine = open_listener(dir.address(), {});
    REQUIRE(dup2(mine.fd, 3) == 3);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    const auto passed = passed_listeners({});
    REQUIRE(passed.size() == 1);
    CHECK_FALSE(passed[0].is_tcp);
    CHECK(passed[0].is_passed);
    CHECK((fcntl(passed[0].fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  const auto at_3 = [](int fd) {  // and nowhere else
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, 20);
    close(fd);
    REQUIRE(dup2(high, 3) == 3);
    close(high);
  };
  const auto put_wrong_one = [&](u32 kind) {
    if (kind == 0) at_3(open("/dev/null", O_RDONLY));
    if (kind == 1) at_3(socket(AF_INET, SOCK_DGRAM, 0));
    if (kind == 2) at_3(socket(AF_UNIX, SOCK_STREAM, 0));  // it does not listen
    if (kind == 3) at_3(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    if (kind == 4) close(3);
  };
  for (u32 kind = 0; kind < 5; ++kind) {
    CAPTURE(kind);
    put_wrong_one(kind);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    CHECK_THROWS_AS(passed_listeners({}), tools::Failure);
  }
  for (const char* count : {"17", "-1", "x", "1x", " 1", "99999999999999999999"}) {
    CAPTURE(count);
    setenv("LISTEN_FDS", count, 1);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    CHECK_THROWS_AS(passed_listeners({}), tools::Failure);
  }
  if (saved >= 0) dup2(saved, 3);
}

TEST_CASE("a listener on port 0 has the name of the port that it got") {
  for (const char* address : {"tcp://127.0.0.1:0", "tcp://[::1]:0"}) {
    CAPTURE(address);
    const Listener listener = open_listener(address, {.has_keys = true});
    sockaddr_in6 at{};  // the port of both families lies at the same place
    socklen_t n = sizeof at;
    REQUIRE(getsockname(listener.fd, reinterpret_cast<sockaddr*>(&at), &n) == 0);
    CHECK(at.sin6_port != 0);
    const std::string host(address, std::strlen(address) - 1);
    CHECK(listener.name == host + std::to_string(ntohs(at.sin6_port)));
  }
}

}  // namespace
}  // namespace tarn::daemon::listeners_test
