// Whether a piece of code fails one of our assertions. It runs in a child process, which an
// assertion ends; in the library it would park the thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "platform/base/assert.h"

namespace tarn::test {

template <class Body>
bool asserts(Body&& body) {
  constexpr int kAsserted = 42;
  const pid_t child = fork();
  if (child == 0) {
    const FatalSink sink{.on_fatal = [](void*, const AssertSite&) { _exit(kAsserted); }};
    set_thread_fatal_sink(&sink);
    body();
    _exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == kAsserted;
}

}  // namespace tarn::test
