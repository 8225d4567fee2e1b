// A child process for a piece of work, with shared memory that keeps its content when the child is
// killed. The parent has one thread, and no others when it starts a child.
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <string>

#include "platform/base/types.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {

// The reason of a failure.
struct ChildFailure {
  ExitCode code = kExitRefused;
  char text[512] = {};
};

// Told is default-constructible, without pointers; fields that the parent reads meanwhile are
// atomic.
template <class Told>
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void(Told&)>& work) {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure{kExitIo, "no shared memory for a process"};
    shared_ = new (memory) Shared();
    std::fflush(stdout);
    pid_ = fork();
    if (pid_ < 0) {
      munmap(shared_, sizeof(Shared));
      throw Failure{kExitIo, std::string("fork: ") + std::strerror(errno)};
    }
    if (pid_ == 0) _exit(child_main(work));
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    kill_now();
    munmap(shared_, sizeof(Shared));
  }

  const Told& told() const { return shared_->told; }
  // Throws Failure if the work failed.
  bool is_running() {
    if (pid_ == 0) return false;
    int status = 0;
    if (wait4(pid_, &status, WNOHANG, &usage_) != pid_) return true;
    pid_ = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    const ChildFailure& failure = shared_->failure;
    throw Failure{failure.code, failure.text[0] != '\0' ? failure.text : "a process died"};
  }
  // Kills it with SIGKILL. Returns false if it had ended before.
  bool kill_now() {
    if (pid_ == 0) return false;  // kill() would take 0 for our own process group
    int status = 0;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  // Only for a child that has ended by itself.
  u64 peak_bytes() const { return static_cast<u64>(usage_.ru_maxrss) * kKiB; }

 private:
  struct Shared {
    Told told{};
    ChildFailure failure{};
  };

  int child_main(const std::function<void(Told&)>& work) {
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    try {
      work(shared_->told);
      return 0;
    } catch (const Failure& failure) {
      shared_->failure.code = failure.code;
      say(failure.text.c_str());
    } catch (const std::exception& error) {
      say(error.what());
    }
    return 1;
  }
  void say(const char* text) {
    std::snprintf(shared_->failure.text, sizeof shared_->failure.text, "%s", text);
  }

  Shared* shared_ = nullptr;
  pid_t pid_ = 0;
  rusage usage_{};
};

}  // namespace tarn::tools
