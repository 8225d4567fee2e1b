#include "platform/io/io_files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/descriptor.h"

namespace tarn {
namespace {

Unexpected open_failed(const IoOpenArgs& args, int error) {
  Reason reason = Reason::none;
  const char* hint = "the file cannot be opened: check the path and the permissions";
  if (error == ENOENT) hint = "there is no such file: check the path";
  if (error == EACCES || error == EPERM) hint = "no permission for the file";
  if (error == ENODEV || error == ENXIO) {
    hint = "not a regular file or block device: copy what it gives into a file";
  }
  if (error == EISDIR) hint = "this is a folder: name a file in it";
  if (error == ENOTDIR) hint = "a part of the path is a file, and no folder: check the path";
  if (error == EWOULDBLOCK && args.exclusive) {
    reason = Reason::store_held;
    hint = "another process or engine has the file open: wait for its end, or name another folder";
  }
  if (error == EROFS) hint = "the file system is read-only: mount it writable, or use another one";
  if (error == ENOSPC) hint = "no room on the disk for the file: free some, or use another disk";
  if (error == EDQUOT) hint = "this user's disk quota is used up: raise it, or free some space";
  if (error == EMFILE || error == ENFILE) hint = "too many open files: raise RLIMIT_NOFILE";
  return fail({.status = Status::io_failed,
               .reason = reason,
               .hint = hint,
               .detail = Detail(args.path),
               .figures = {{{"errno", static_cast<u64>(error)}}}});
}

int open_retrying(const char* path, int flags) {
  int fd = -1;
  do {
    fd = above_standard(::open(path, flags, 0600));
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Some file systems take O_DIRECT at open and refuse it at the first read.
bool direct_works(int fd) {
  alignas(kSectorBytes) std::byte sector[kSectorBytes];
  return pread(fd, sector, sizeof sector, 0) >= 0 || errno != EINVAL;
}

// 0, or the errno that refuses the file.
int check_kind(int fd) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return errno;
  if (S_ISDIR(facts.st_mode)) return EISDIR;
  return S_ISREG(facts.st_mode) || S_ISBLK(facts.st_mode) ? 0 : ENODEV;
}

// Blocks that fallocate got before it failed stay with the file (on ext4, with and without the
// length), so the disk would stay full. Truncating a longer file frees the blocks beyond its end.
void give_back(int fd, off_t length) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return;
  constexpr off_t kBlockBytes = 512;  // unit of st_blocks on every file system
  const off_t there = std::max(facts.st_size, facts.st_blocks * kBlockBytes);
  // The first failure is answered, not a failure of this.
  [[maybe_unused]] const int passed = there > length ? ftruncate(fd, there) : 0;
  [[maybe_unused]] const int back = ftruncate(fd, length);
}

}  // namespace

IoFileTable::~IoFileTable() {
  for (const Entry& open_entry : entries_) {
    if (open_entry.fd >= 0) close_entry(open_entry);
  }
}

void IoFileTable::close_entry(const Entry& open_entry) {
  // A ring that is torn down keeps its registered files for a while after this.
  if (open_entry.exclusive) flock(open_entry.fd, LOCK_UN);
  ::close(open_entry.fd);
}

i32 IoFileTable::free_index() const {
  for (u32 i = 0; i < entries_.size(); ++i) {
    if (entries_[i].fd < 0) return static_cast<i32>(i);
  }
  return -1;
}

const IoFileTable::Entry& IoFileTable::entry(IoFile file) const {
  TARN_ASSERT(file.index >= 0 && static_cast<u32>(file.index) < entries_.size());
  const Entry& found = entries_[static_cast<u32>(file.index)];
  TARN_ASSERT(found.fd >= 0);
  return found;
}

Result<IoFile> IoFileTable::open(const IoOpenArgs& args) {
  const i32 index = free_index();
  if (index < 0) {
    return fail({.status = Status::io_failed,
                 .hint = "the table of open files is full",
                 .detail = Detail(args.path),
                 .figures = {{{"files_max", kIoFilesMax}}}});
  }
  // O_NONBLOCK: opening a pipe without a writer would wait for ever. The flag is cleared
  // afterwards, because with it io_uring answers -EAGAIN instead of waiting for the disk.
  const int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (args.write ? O_RDWR : O_RDONLY) |
                    (args.create ? O_CREAT : 0);
  bool direct = args.direct;
  int fd = open_retrying(args.path, flags | (direct ? O_DIRECT : 0));
  if (fd < 0 && errno == EINVAL && direct) {
    direct = false;
    fd = open_retrying(args.path, flags);
  }
  if (fd < 0) return open_failed(args, errno);
  int error = check_kind(fd);
  // flock() belongs to this open of the file, so it keeps out a second engine in this process too.
  if (error == 0 && args.exclusive && flock(fd, LOCK_EX | LOCK_NB) != 0) error = errno;
  if (error == 0 && direct) direct = direct_works(fd);
  if (error == 0 && fcntl(fd, F_SETFL, direct ? O_DIRECT : 0) != 0) error = errno;
  if (error != 0) {
    ::close(fd);
    return open_failed(args, error);
  }
  entries_[static_cast<u32>(index)] = {.fd = fd, .direct = direct, .exclusive = args.exclusive};
  return IoFile{index};
}

IoFile IoFileTable::adopt(i32 fd) {
  const i32 index = free_index();
  TARN_ASSERT(index >= 0 && fd >= 0);
  entries_[static_cast<u32>(index)] = {.fd = fd};
  return IoFile{index};
}

void IoFileTable::close(IoFile file) {
  close_entry(entry(file));
  entries_[static_cast<u32>(file.index)] = {};
}

Result<u64> IoFileTable::size_bytes(IoFile file) const {
  const off_t end = lseek(entry(file).fd, 0, SEEK_END);  // works for block devices too
  if (end >= 0) return static_cast<u64>(end);
  return fail({.status = Status::io_failed,
               .hint = "the file's size cannot be read",
               .figures = {{{"errno", static_cast<u64>(errno)}}}});
}

Result<void> IoFileTable::allocate(IoFile file, u64 bytes) const {
  const int fd = entry(file).fd;
  constexpr u64 kLengthMax = ~u64{0} >> 1;  // off_t is signed
  int error = bytes <= kLengthMax ? 0 : EFBIG;
  const auto length = static_cast<off_t>(bytes);
  struct stat before {};
  if (error == 0 && fstat(fd, &before) != 0) error = errno;
  if (error == 0 && length > 0) {
    do {
      error = fallocate(fd, 0, 0, length) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == EOPNOTSUPP) error = 0;
    if (error != 0) give_back(fd, before.st_size);
  }
  if (error == 0 && ftruncate(fd, length) != 0) error = errno;
  if (error == 0) return {};
  const char* hint = "the file cannot be given its size";
  if (error == ENOSPC)
    hint =
        "no room on the disk for the file: free some, or ask for fewer bytes "
        "(store.quota_bytes; -c)";
  if (error == EDQUOT)
    hint =
        "this user's disk quota is too small for the file: raise it, or ask for fewer bytes "
        "(store.quota_bytes; -c)";
  if (error == EROFS) hint = "the file system is read-only: mount it writable, or use another one";
  if (error == EFBIG)
    hint =
        "the file system or the file-size limit (ulimit -f) forbids so large a file: raise the "
        "limit, or ask for fewer bytes (store.quota_bytes; -c)";
  return fail({.status = Status::io_failed,
               .hint = hint,
               .figures = {{{"errno", static_cast<u64>(error)}, {"bytes", bytes}}}});
}

}  // namespace tarn
