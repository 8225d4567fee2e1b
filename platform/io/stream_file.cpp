#include "platform/io/stream_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "platform/base/assert.h"
#include "platform/base/descriptor.h"

namespace tarn {
namespace {

constexpr std::string_view kPart = ".part";
constexpr mode_t kPrivateFile = 0600;
constexpr u64 kAtOnceBytes = 16 * kMiB;

const char* write_hint(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full: free some, or name a file on another one";
    case EDQUOT:
      return "this user's disk quota is used up: raise it, or name a file on another disk";
    case EFBIG:
      return "the file is larger than this process, or this file system, may write: raise the "
             "limit (ulimit -f), or name a file on another disk";
    case ENOENT:
      return "the file's folder does not exist: make it, or name another one";
    case EACCES:
    case EPERM:
      return "no permission to write this file: name another one";
    case EROFS:
      return "the file system is read-only: name a file on another one";
    default:
      return "the file cannot be written: check the disk, or name another file";
  }
}

Unexpected io_error(const char* hint, const char* path) {
  return fail({.status = Status::io_failed,
               .hint = hint,
               .detail = Detail(path),
               .figures = {Figure{"errno", static_cast<u64>(errno)}}});
}

// Syncs the folder, so that the name outlives a power cut.
bool sync_folder_of(std::string_view path) {
  std::array<char, 1024> folder{};
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? "."
                                : slash == 0                    ? "/"
                                                                : path.substr(0, slash);
  TARN_ASSERT(name.size() < folder.size());
  std::memcpy(folder.data(), name.data(), name.size());
  const int fd = above_standard(::open(folder.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) return false;
  const bool is_synced = ::fsync(fd) == 0 || errno == EINVAL;  // EINVAL: no sync of folders here
  ::close(fd);
  return is_synced;
}

}  // namespace

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::unlink(part_.data());
  ::close(fd_);  // releases the lock too
}

Unexpected FileWriter::failed(const char* hint) const { return io_error(hint, path_.data()); }

Result<void> FileWriter::create(const char* path) {
  TARN_ASSERT(fd_ < 0);
  const u64 n = std::strlen(path);
  if (n == 0 || n + kPart.size() >= part_.size()) {
    return fail({.status = Status::invalid_request,
                 .hint = "the file's path is empty or too long",
                 .figures = {{{"bytes", n}, {"bytes_max", part_.size() - kPart.size() - 1}}}});
  }
  std::memcpy(path_.data(), path, n + 1);
  std::memcpy(part_.data(), path, n);
  std::memcpy(part_.data() + n, kPart.data(), kPart.size() + 1);
  struct stat there {};
  if (::stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
    return fail({.status = Status::io_failed,
                 .hint = "this name is a folder or a device: name another file",
                 .detail = Detail(path)});
  }
  const int fd = above_standard(
      ::open(part_.data(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, kPrivateFile));
  if (fd < 0) return failed(write_hint(errno));
  // The last writer may have finished between our two calls: then the name is another file's.
  struct stat named {
  }, locked{};
  const bool is_ours = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd, &locked) == 0 &&
                       ::stat(part_.data(), &named) == 0 && named.st_ino == locked.st_ino &&
                       named.st_dev == locked.st_dev;
  if (!is_ours) {
    const Unexpected taken = failed("another process writes this file now: wait for its end");
    ::close(fd);
    return taken;
  }
  fd_ = fd;
  if (::fchmod(fd, kPrivateFile) != 0 || ::ftruncate(fd, 0) != 0) return failed(write_hint(errno));
  return {};
}

Result<void> FileWriter::write(std::span<const std::byte> bytes) {
  TARN_ASSERT(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kAtOnceBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed(write_hint(n == 0 ? ENOSPC : errno));
    bytes = bytes.subspan(static_cast<u64>(n));
  }
  return {};
}

Result<void> FileWriter::finish() {
  TARN_ASSERT(fd_ >= 0);
  if (::fsync(fd_) != 0) return failed(write_hint(errno));
  if (::rename(part_.data(), path_.data()) != 0) return failed(write_hint(errno));
  ::close(fd_);
  fd_ = -1;
  if (!sync_folder_of(path_.data())) {
    return failed("the file is whole, but its name may not outlive a power cut: check the disk");
  }
  return {};
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> FileReader::open(const char* path) {
  TARN_ASSERT(fd_ < 0);
  // A pipe in its place must not make us wait for a writer.
  fd_ = above_standard(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd_ < 0) return io_error("the file cannot be opened: check its path and permissions", path);
  struct stat there {};
  if (::fstat(fd_, &there) != 0) return io_error("the file's type and size cannot be read", path);
  if (!S_ISREG(there.st_mode)) {
    return fail({.status = Status::invalid_request,
                 .hint = "this is not a regular file: copy it into one first",
                 .detail = Detail(path)});
  }
  size_bytes_ = static_cast<u64>(there.st_size);
  return {};
}

Result<void> FileReader::read(std::span<std::byte> bytes) {
  TARN_ASSERT(fd_ >= 0);
  while (!bytes.empty()) {
    const ssize_t n = ::read(fd_, bytes.data(), std::min(bytes.size(), kAtOnceBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("the file cannot be read: check the disk", "");
    if (n == 0) {
      return fail({.status = Status::io_failed, .hint = "the file ends too early: copy it again"});
    }
    bytes = bytes.subspan(static_cast<u64>(n));
  }
  return {};
}

Result<void> FileReader::rewind(u64 offset) {
  TARN_ASSERT(fd_ >= 0);
  if (::lseek(fd_, static_cast<off_t>(offset), SEEK_SET) >= 0) return {};
  return io_error("the file cannot be read: check the disk", "");
}

}  // namespace tarn
