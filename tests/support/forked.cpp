#include "tests/support/forked.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>

namespace tarn::test {

bool deny_syscall(int number, int error, const int* third_argument) {
  const auto load = [](std::size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<__u32>(offset));
  };
  // The low half of an argument: every ABI we build for is little-endian.
  const std::size_t argument_at = offsetof(seccomp_data, args) + 2 * sizeof(__u64);
  const __u32 argument = static_cast<__u32>(third_argument != nullptr ? *third_argument : 0);
  sock_filter code[] = {
      load(offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<__u32>(number), 0, 3),
      load(argument_at),
      BPF_JUMP(BPF_JMP | (third_argument != nullptr ? BPF_JEQ : BPF_JGE) | BPF_K, argument, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<__u32>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace tarn::test
