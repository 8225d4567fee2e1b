#include "platform/cpu/ready_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "platform/base/descriptor.h"

namespace tarn {

ReadyFd::~ReadyFd() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> ReadyFd::open() {
  fd_ = above_standard(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd_ >= 0) return {};
  return fail({.status = Status::io_failed,
               .hint = "the system refused a descriptor (eventfd): raise the limit of open files "
                       "(ulimit -n, or LimitNOFILE of the unit)",
               .figures = {{{"errno", static_cast<u64>(errno)}}}});
}

void ReadyFd::set() const {
  const u64 one = 1;
  while (fd_ >= 0 && ::write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void ReadyFd::clear() const {
  u64 count = 0;
  while (fd_ >= 0 && ::read(fd_, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace tarn
