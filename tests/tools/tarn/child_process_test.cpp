// Goal    what a child told is there when it has ended, failed or been killed; a kill that comes
//         too late says so, and is never one of the caller's process group.
// Method  children that do little, in a process group of their own: a wrong kill ends that alone.
#include "tools/tarn/child_process.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>

namespace tarn::tools::child_process_test {
namespace {

struct Told {
  std::atomic<u32> n{0};
};
using Child = ChildProcess<Told>;

void work_for_ever(Told& told) {
  for (;;) {
    ++told.n;
    usleep(1000);
  }
}

void wait_until_ended(Child& child) {
  while (child.is_running()) usleep(1000);
}

// The exit status of `body` in a process that leads a group.
int status_of(const std::function<bool()>& body) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    setpgid(0, 0);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

TEST_CASE("a child is killed, and what it told stays") {
  CHECK(status_of([] {
          Child child(work_for_ever);
          while (child.told().n < 3) usleep(1000);
          return child.is_running() && child.kill_now() && !child.is_running() &&
                 child.told().n >= 3;
        }) == 0);
}

TEST_CASE("a kill that comes too late kills nobody") {
  CHECK(status_of([] {  // the parent has seen its end
          Child child([](Told& told) { told.n = 7; });
          wait_until_ended(child);
          return !child.kill_now() && child.told().n == 7;
        }) == 0);
  CHECK(status_of([] {  // it has not, but the child has ended
          Child child([](Told& told) { told.n = 7; });
          siginfo_t ended{};
          while (waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) != 0) {
          }
          return !child.kill_now() && child.told().n == 7;
        }) == 0);
  CHECK(status_of([] {
          Child child(work_for_ever);
          return child.kill_now() && !child.kill_now();
        }) == 0);
}

TEST_CASE("a child's failure is the parent's") {
  CHECK(status_of([] {
          Child child([](Told&) { throw Failure{kExitIo, "the disk is gone"}; });
          try {
            wait_until_ended(child);
          } catch (const Failure& failure) {
            return failure.code == kExitIo && failure.text == "the disk is gone" &&
                   !child.is_running();
          }
          return false;
        }) == 0);
}

}  // namespace
}  // namespace tarn::tools::child_process_test
