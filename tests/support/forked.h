// tests/support/forked.h
//
// Runs a piece of a test in a child process, where it may lower its limits, give up its rights or
// forbid itself system calls for ever. The child must not use doctest's macros: it answers with a
// number from 0 to 255.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace tarn::test {

// What `fn` returned, or -1 if the child died.
template <class Fn>
int in_child(Fn&& fn) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(fn());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// From now on this process' system call `number` fails with `error` (only where the third argument
// is `third_argument`, if one is given). False where the system cannot filter (qemu-user).
bool deny_syscall(int number, int error, const int* third_argument = nullptr);

}  // namespace tarn::test
