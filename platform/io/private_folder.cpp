#include "platform/io/private_folder.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tarn {
namespace {

constexpr mode_t kPrivateFolder = 0700;
constexpr mode_t kOfOthers = 077;

Unexpected refused(const char* hint, const char* path, const char* name, u64 value) {
  return fail({.status = Status::io_failed,
               .hint = hint,
               .detail = Detail(path),
               .figures = {Figure{name, value}}});
}

const char* mkdir_hint(int error) {
  if (error == ENOENT) return "the folder's parent does not exist: make it, or name another folder";
  if (error == EACCES || error == EPERM) {
    return "no permission to make the folder: make it with mode 0700 for this user";
  }
  if (error == EROFS) return "the file system is read-only: name a folder on another one";
  if (error == ENOSPC || error == EDQUOT) {
    return "no room on the disk, or in this user's quota, for the folder: free some";
  }
  if (error == ENOTDIR) return "a part of the folder's path is a file: name another folder";
  return "the folder cannot be made: check the path";
}

}  // namespace

Result<void> make_private_folder(const char* path) {
  if (mkdir(path, kPrivateFolder) != 0 && errno != EEXIST) {
    return refused(mkdir_hint(errno), path, "errno", static_cast<u64>(errno));
  }
  return check_private_folder(path);
}

Result<void> check_private_folder(const char* path) {
  struct stat there {};
  if (lstat(path, &there) != 0) {
    return refused("the folder cannot be read: check the path's permissions", path, "errno",
                   static_cast<u64>(errno));
  }
  if (!S_ISDIR(there.st_mode)) {
    return fail({.status = Status::io_failed,
                 .hint = "the path is a link or a file, not a folder: name the folder itself",
                 .detail = Detail(path)});
  }
  if (there.st_uid != geteuid()) {
    return refused("the folder belongs to another user: chown it, or name another folder", path,
                   "uid", there.st_uid);
  }
  if ((there.st_mode & kOfOthers) != 0) {
    return fail({.status = Status::io_failed,
                 .hint = "other users can read the folder, which will hold what users wrote: close "
                         "it with chmod 700",
                 .detail = Detail(path)});
  }
  return {};
}

Result<void> fill_random(std::span<u8> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = getrandom(bytes.data(), bytes.size(), 0);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<u64>(n));
    } else if (errno != EINTR) {
      return refused("the system gives no random bytes: allow getrandom", "getrandom", "errno",
                     static_cast<u64>(errno));
    }
  }
  return {};
}

}  // namespace tarn
