// Goal    a program whose parent closed descriptors 0 to 2 has /dev/null there, so that no file of
//         its own gets such a number. Open ones stay as they are, and no output is lost in silence.
// Method  child processes with each set of the three closed, which compare what is there then.
#include "tools/support/standard_descriptors.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/base/types.h"
#include "tests/support/forked.h"

namespace tarn::tools::standard_descriptors_test {
namespace {

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

TEST_CASE("closed standard descriptors become /dev/null, open ones stay") {
  struct stat nothing {};
  REQUIRE(stat("/dev/null", &nothing) == 0);
  for (u32 closed = 0; closed < 8; ++closed) {
    CAPTURE(closed);
    const int code = tarn::test::in_child([&] {
      int ends[2];
      if (pipe(ends) != 0) return 1;
      struct stat mine {};
      fstat(ends[0], &mine);
      for (int fd = 0; fd < 3; ++fd) {
        dup2(ends[fd == 0 ? 0 : 1], fd);
        if ((closed >> fd & 1) != 0) close(fd);
      }
      fill_standard_descriptors();
      for (int fd = 0; fd < 3; ++fd) {
        struct stat facts {};
        if (fstat(fd, &facts) != 0) return 2;
        if (!is_same_file(facts, (closed >> fd & 1) != 0 ? nothing : mine)) return 3;
      }
      char byte = 0;
      if ((closed & 1) != 0 && read(STDIN_FILENO, &byte, 1) != 0) return 4;
      if ((closed & 2) != 0 && write(STDOUT_FILENO, "x", 1) != -1) return 5;
      if ((closed & 4) != 0 && write(STDERR_FILENO, "x", 1) != 1) return 7;
      return open("/dev/null", O_RDONLY) > STDERR_FILENO ? 0 : 6;
    });
    CHECK(code == 0);
  }
}

}  // namespace
}  // namespace tarn::tools::standard_descriptors_test
