// Goal    a failed assertion ends a program with exit code 70, and a report that is lost makes a
//         success one of 74; a lost GPU ends one with 75 at once.
// Method  child processes that assert with the programs' sink, that print to a full device, and
//         that have an exit handler.
#include "tools/support/exit_code.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/forked.h"

namespace tarn::tools::exit_code_test {
namespace {

TEST_CASE("an assertion ends the program with 70") {
  const int code = tarn::test::in_child([] {
    set_thread_fatal_sink(&fatal_sink());
    TARN_ASSERT(fatal_sink().on_fatal == nullptr);
    return 0;
  });
  CHECK(code == kExitInternal);
}

TEST_CASE("a report that is lost is an I/O failure, and hides no other") {
  for (const int code : {kExitOk, kExitRefused}) {
    for (const char* device : {"/dev/null", "/dev/full"}) {
      CAPTURE(code);
      CAPTURE(device);
      const int ended = tarn::test::in_child([&] {
        if (dup2(open(device, O_WRONLY), STDOUT_FILENO) < 0) return 1;
        std::puts("report");
        return code_after_output("test", code);
      });
      const bool lost = device == std::string("/dev/full");
      CHECK(ended == (code == kExitOk && lost ? kExitIo : code));
    }
  }
}

TEST_CASE("after a lost GPU no exit handler runs, which might wait for it") {
  for (const int code : {kExitGpuLost, kExitRefused}) {
    CAPTURE(code);
    int ends[2] = {};
    REQUIRE(pipe(ends) == 0);
    const int ended = tarn::test::in_child([&]() -> int {
      if (dup2(ends[1], STDOUT_FILENO) < 0) return 1;
      std::atexit([] { _exit(3); });
      std::printf("said");
      std::exit(code_after_output("test", code));
    });
    CHECK(ended == (code == kExitGpuLost ? int{kExitGpuLost} : 3));
    close(ends[1]);
    char text[8] = {};
    CHECK(read(ends[0], text, sizeof text - 1) == 4);
    CHECK(std::string(text) == "said");
    close(ends[0]);
  }
}

}  // namespace
}  // namespace tarn::tools::exit_code_test
