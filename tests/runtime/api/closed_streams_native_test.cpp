// Goal    in a host whose descriptors 0 to 2 are closed none of them becomes a file of the engine:
//         what the host prints reaches no ring, no store and no event.
// Method  the three are closed, one alone or all; an engine of each I/O backend answers, keeps a
//         session and packs it; then each number must still be free.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "platform/base/descriptor.h"
#include "runtime/api/tarn_store.h"
#include "tests/runtime/api/host.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_dir.h"

namespace tarn::closed_streams_native_test {
namespace {

// The standard streams of this process are closed while it lives.
class ClosedStreams {
 public:
  explicit ClosedStreams(const std::vector<int>& closed) {
    for (size_t i = 0; i < kept_.size(); ++i) kept_[i] = fcntl(static_cast<int>(i), F_DUPFD, 10);
    for (const int fd : closed) ::close(fd);
  }
  ~ClosedStreams() {
    for (size_t i = 0; i < kept_.size(); ++i) {
      dup2(kept_[i], static_cast<int>(i));
      ::close(kept_[i]);
    }
  }
  ClosedStreams(const ClosedStreams&) = delete;
  ClosedStreams& operator=(const ClosedStreams&) = delete;

 private:
  std::array<int, 3> kept_{};
};

bool is_free(int fd) { return fcntl(fd, F_GETFD) == -1 && errno == EBADF; }

std::vector<int> used_of(const std::vector<int>& closed) {
  std::vector<int> used;
  for (const int fd : closed) {
    if (!is_free(fd)) used.push_back(fd);
  }
  return used;
}

const std::vector<std::vector<int>> kClosed = {{0}, {1}, {2}, {0, 1, 2}};

TEST_CASE("a file that opens as 0, 1 or 2 moves above them, and no error is lost") {
  for (const std::vector<int>& closed : kClosed) {
    int fd = -1;
    bool is_close_on_exec = false;
    std::vector<int> used;
    {
      const ClosedStreams streams(closed);
      fd = above_standard(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      is_close_on_exec = (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
      used = used_of(closed);
      ::close(fd);
    }
    CHECK(fd > 2);
    CHECK(is_close_on_exec);
    CHECK(used.empty());
  }
  CHECK(above_standard(::open("/nowhere/at/all", O_RDONLY | O_CLOEXEC)) == -1);
  CHECK(errno == ENOENT);
  CHECK(above_standard(77) == 77);
}

TEST_CASE("an engine opens nothing as descriptor 0, 1 or 2") {
  const test::SmallModel model("llama", "q8_0");
  for (const char* backend : {"auto", "threads"}) {
    for (const std::vector<int>& closed : kClosed) {
      CAPTURE(backend);
      CAPTURE(closed.size());
      const test::TempDir folder("closed_streams");
      const test::TempFile pack("closed_streams.session");
      const std::vector<u32> ids = test::random_ids(1, 100);
      size_t n_answered = 0;
      int event_fd = -1;
      std::vector<int> used;
      {
        const ClosedStreams streams(closed);
        test::Host host(model.path(), (std::string("kv.context_tokens = 512\nio.backend = '") +
                                       backend + "'\nstore.path = '" + folder.path() +
                                       "'\nstore.quota_bytes = '64MiB'\nstore.sessions = true\n")
                                          .c_str());
        tarn_session* session = host.session();
        REQUIRE(tarn_session_feed(session, ids.data(), ids.size()) == TARN_OK);
        n_answered = test::run(session, 4).tokens.size();
        REQUIRE(tarn_session_save(session, "talk") == TARN_OK);
        REQUIRE(tarn_store_pack(host.engine, nullptr, nullptr, 0, pack.path().c_str()) == TARN_OK);
        event_fd = tarn_engine_fd(host.engine);
        used = used_of(closed);
      }
      CHECK(n_answered == 4);
      CHECK(event_fd > 2);
      CHECK(used.empty());
    }
  }
}

}  // namespace
}  // namespace tarn::closed_streams_native_test
