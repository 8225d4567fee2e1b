// Every real IoBackend that works here, for tests of all of them, and a scratch file on the build
// folder's file system (a real disk: tmpfs hides alignment mistakes).
#pragma once

#include <unistd.h>

#include <string>
#include <vector>

#include "platform/io/io_backend.h"
#include "tests/support/folders.h"

namespace tarn::test {

// Owns the memory and the backend in it.
class OwnedIo {
 public:
  explicit OwnedIo(const IoConfig& config) : memory_(io_backend_bytes()) {
    auto made = io_backend_create(config, memory_);
    if (made) handle_ = *made;
    if (!made) error_ = made.error();
  }
  OwnedIo(const OwnedIo&) = delete;
  OwnedIo& operator=(const OwnedIo&) = delete;
  ~OwnedIo() {
    if (handle_.backend != nullptr) io_backend_destroy(handle_.backend);
  }

  explicit operator bool() const { return handle_.backend != nullptr; }
  IoBackend& operator*() const { return *handle_.backend; }
  IoBackend* operator->() const { return handle_.backend; }
  const char* why_not() const { return handle_.why_not; }
  const Error& error() const { return error_; }

 private:
  std::vector<std::byte> memory_;
  IoBackendHandle handle_{};
  Error error_{};
};

// The kinds that work on this machine; the threads always do.
inline std::vector<IoKind> io_kinds_here() {
  std::vector<IoKind> kinds = {IoKind::threads};
  if (OwnedIo({.kind = IoKind::uring})) kinds.push_back(IoKind::uring);
  return kinds;
}

class ScratchFile {
 public:
  explicit ScratchFile(const char* name)
      : path_(build_folder() + "/" + name + "." + std::to_string(getpid())) {
    unlink(path_.c_str());
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() { unlink(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

}  // namespace tarn::test
