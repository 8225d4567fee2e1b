// A descriptor that is readable from set() to clear(): for the poll loop of a host.
//
//   thread   set() any, after a failed assertion too; the others one at a time
#pragma once

#include "platform/base/result.h"

namespace tarn {

class ReadyFd {
 public:
  ReadyFd() = default;
  ReadyFd(const ReadyFd&) = delete;
  ReadyFd& operator=(const ReadyFd&) = delete;
  ~ReadyFd();

  Result<void> open();
  int fd() const { return fd_; }  // -1: not open
  void set() const;
  void clear() const;

 private:
  int fd_ = -1;
};

}  // namespace tarn
