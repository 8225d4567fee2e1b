// Runs a part of a test in a child process, which may lower its limits, drop its rights or deny
// itself system calls for ever. The child must not use doctest's macros: it returns a number from 0
// to 255.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace tarn::test {

// Returns the result of `fn`, or -1 if the child died.
template <class Fn>
int in_child(Fn&& fn) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(fn());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// Makes this process' system call `number` fail with `error` from now on (only with this third
// argument, if one is given). Returns false if the system cannot filter (qemu-user).
bool deny_syscall(int number, int error, const int* third_argument = nullptr);

}  // namespace tarn::test
