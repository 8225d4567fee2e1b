#include "tools/tarn/input_mark.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>

#include "runtime/store/key.h"

namespace tarn::tools {
namespace {

constexpr u64 kFileBytes = 4096;
constexpr const char* kFile = "/sessions.asked";

struct Mark {
  u64 name = 0;  // its hash
  u64 n_tokens = 0;
  u64 is_open = 0;
  u64 reserved = 0;
};
constexpr u64 kMarks = kFileBytes / sizeof(Mark);

Mark* g_own = nullptr;  // of this process's input

// The file, mapped. `makes`: where there is none.
class MarkFile {
 public:
  MarkFile(const std::string& folder, bool makes) {
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (makes ? O_CREAT : 0);
    const int fd = open((folder + kFile).c_str(), flags, 0600);
    if (fd < 0) return;
    struct stat there {};
    const bool is_whole = fstat(fd, &there) == 0 && S_ISREG(there.st_mode) &&
                          (makes ? posix_fallocate(fd, 0, kFileBytes) == 0
                                 : there.st_size >= static_cast<off_t>(kFileBytes));
    if (is_whole) {
      void* at = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (at != MAP_FAILED) marks_ = static_cast<Mark*>(at);
    }
    close(fd);
  }
  MarkFile(const MarkFile&) = delete;
  MarkFile& operator=(const MarkFile&) = delete;
  ~MarkFile() {
    if (marks_ != nullptr) munmap(marks_, kFileBytes);
  }
  bool is_there() const { return marks_ != nullptr; }
  Mark& of(const store::Key& name) { return marks_[name.low % kMarks]; }
  // It stays mapped until the process ends.
  void keep() { marks_ = nullptr; }
  bool sync() { return msync(marks_, kFileBytes, MS_SYNC) == 0; }

 private:
  Mark* marks_ = nullptr;
};

// The same in every store.
store::Key hash_of(const std::string& name) {
  const std::array<u8, 32> no_entropy{};
  return store::named_key(store::make_secret(no_entropy), {}, name);
}

void set_open(Mark& mark, u64 is_open) {
  std::atomic_ref(mark.is_open).store(is_open, std::memory_order_release);
}

}  // namespace

void mark_input(const std::string& folder, const std::string& name, u64 n_tokens) {
  MarkFile file(folder, /*makes=*/true);
  const store::Key key = hash_of(name);
  if (file.is_there()) {
    Mark& mark = file.of(key);
    set_open(mark, 0);
    mark.name = key.high;
    mark.n_tokens = n_tokens;
    set_open(mark, 1);
  }
  if (!file.is_there() || !file.sync()) {
    std::fprintf(stderr,
                 "tarn warning: %s%s cannot be written: if this run is killed behind its save, its "
                 "repeat asks a second time\n",
                 folder.c_str(), kFile);
    return;
  }
  g_own = &file.of(key);
  file.keep();
}

std::optional<u64> marked_input(const std::string& folder, const std::string& name) {
  MarkFile file(folder, /*makes=*/false);
  const store::Key key = hash_of(name);
  if (!file.is_there() || file.of(key).name != key.high || file.of(key).is_open == 0)
    return std::nullopt;
  return file.of(key).n_tokens;
}

void forget_mark(const std::string& folder, const std::string& name) {
  MarkFile file(folder, /*makes=*/false);
  const store::Key key = hash_of(name);
  if (file.is_there() && file.of(key).name == key.high) set_open(file.of(key), 0);
}

void end_marked_run(int code) {
  if (g_own == nullptr) return;
  set_open(*g_own, 0);
  _exit(code);
}

}  // namespace tarn::tools
