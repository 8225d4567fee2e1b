// Goal    a failed assertion ends a program with exit code 70, and a report that is lost makes a
//         success one of 74.
// Method  child processes that assert with the programs' sink, and that print to a full device.
#include "tools/support/exit_code.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/support/forked.h"

namespace tarn::tools {
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

}  // namespace
}  // namespace tarn::tools
