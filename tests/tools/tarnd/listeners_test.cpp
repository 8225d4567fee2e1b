// Goal    A path is taken only where nobody else could replace it; a stale socket is replaced, a
//         live one and other files are not; a TCP address is the loopback's unless told.
// Method  Folders and files of each kind; real sockets.
#include "tools/tarnd/listeners.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
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
    CHECK(refused(each.address) == each.code);
  }
  CHECK(refused("tcp://0.0.0.0:0", {.beyond_loopback = true}) == 0);
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
    CHECK((fcntl(passed[0].fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  REQUIRE(open("/dev/null", O_RDONLY) >= 0);
  REQUIRE(dup2(open("/dev/null", O_RDONLY), 3) == 3);
  setenv("LISTEN_FDS", "1", 1);
  setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
  CHECK_THROWS_AS(passed_listeners({}), tools::Failure);
  if (saved >= 0) dup2(saved, 3);
}

}  // namespace
}  // namespace tarn::daemon::listeners_test
