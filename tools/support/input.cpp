#include "tools/support/input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

constexpr std::string_view kStandardInput = "-";

[[noreturn]] void fail_io(const char* what, const std::string& path) {
  throw Failure{kExitIo, std::string(what) + " " + path + ": " + std::strerror(errno)};
}

// A path from the command line: an open file. A name with U+0000 would be another file's.
class File {
 public:
  File(const std::string& path, int flags) : path_(path) {
    if (path.find('\0') != std::string::npos) {
      throw Failure{kExitUsage, "the name of a file has a zero byte: name another file"};
    }
    if (path == kStandardInput &&
        flags == O_RDONLY) {  // as it is: its position, and a socket, which has no path
      fd_ = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
      if (fd_ >= 0) ::fstat(fd_, &facts_);
      return;
    }
    open(flags);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }

  int fd() const { return fd_; }
  bool is_pipe() const { return S_ISFIFO(facts_.st_mode); }
  u64 n_bytes() const { return S_ISREG(facts_.st_mode) ? static_cast<u64>(facts_.st_size) : 0; }

  // Returns the number of bytes read, 0 at the end, -1 where the system refuses it.
  ssize_t read(char* bytes, size_t n_max) {
    for (;;) {
      const ssize_t n = ::read(fd_, bytes, n_max);
      if (n < 0 && errno == EAGAIN) {
        wait_for(POLLIN, -1);
      } else if (n == 0 && is_pipe() && writer_ != Writer::known) {
        // It comes now, has come and gone, or is there by the next read and has nothing yet.
        if (writer_ == Writer::late) {
          throw Failure{kExitIo, path_ + ": nothing writes to this pipe: start its writer first"};
        }
        writer_ = wait_for(POLLIN, kOtherEndMs) == 0 ? Writer::late : Writer::known;
      } else if (n >= 0 || errno != EINTR) {
        writer_ = Writer::known;
        return n;
      }
    }
  }
  bool write(const char* bytes, size_t n_left) {
    while (n_left > 0) {
      const ssize_t n = ::write(fd_, bytes, n_left);
      if (n < 0 && errno == EAGAIN) wait_for(POLLOUT, -1);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (n > 0) bytes += n, n_left -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  static constexpr int kOtherEndMs = 3000;

  void open(int flags) {
    constexpr mode_t kMode = 0666;
    constexpr int kNapMs = 10;
    int waited_ms = 0;  // for a pipe's reader
    do {
      fd_ = ::open(path_.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, kMode);
      if (fd_ >= 0 || errno != ENXIO || waited_ms >= kOtherEndMs) continue;
      waited_ms += kNapMs;
      ::poll(nullptr, 0, kNapMs);
      errno = EINTR;
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0 || ::fstat(fd_, &facts_) != 0) return;
    if (!S_ISFIFO(facts_.st_mode)) ::fcntl(fd_, F_SETFL, 0);
  }
  int wait_for(short events, int timeout_ms) const {
    pollfd ready{.fd = fd_, .events = events, .revents = 0};
    return ::poll(&ready, 1, timeout_ms);
  }

  std::string path_;
  struct stat facts_ {};
  int fd_ = -1;
  enum class Writer { unknown, late, known } writer_ = Writer::unknown;
};

// Refuses to read standard input a second time.
void take(const std::string& path) {
  static bool is_taken = false;
  if (path != kStandardInput || !std::exchange(is_taken, true)) return;
  throw Failure{kExitUsage, "-: standard input can be read once: name a file for the others"};
}

}  // namespace

std::string read_file(const std::string& path, u64 bytes_max) {
  take(path);
  File file(path, O_RDONLY);
  if (file.fd() < 0) fail_io("cannot open", path);
  const auto check = [&](u64 n_bytes) {
    if (n_bytes <= bytes_max) return;
    throw Failure{kExitRefused, path + ": larger than " + std::to_string(bytes_max / 1024) +
                                    " KiB, the largest that is read here: is it the right file?"};
  };
  check(file.n_bytes());
  std::string text;
  char piece[65536];
  for (;;) {
    const ssize_t n = file.read(piece, sizeof piece);
    if (n < 0) fail_io("cannot read", path);
    if (n == 0) return text;
    text.append(piece, static_cast<size_t>(n));
    check(text.size());
  }
}

std::string read_text(const std::string& path, u64 bytes_max) {
  std::string text = read_file(path, bytes_max);
  const size_t zero = text.find('\0');
  if (zero == std::string::npos) return text;
  throw Failure{kExitRefused, path + ": a zero byte is no text (byte " + std::to_string(zero) +
                                  "): save the file as UTF-8, or name another one"};
}

std::vector<u32> read_ids(const std::string& path) {
  const std::string text = read_file(path);
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  std::vector<u32> ids;
  for (size_t begin = text.find_first_not_of(kSpace); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    u32 id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end) {
      throw Failure{kExitRefused, path + ": not a token id: '" +
                                      text.substr(begin, std::min<size_t>(end - begin, 32)) +
                                      "' (give whole numbers separated by white space)"};
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kSpace, end);
  }
  return ids;
}

void warn_of_empty(const char* what, const std::string& file) {
  const std::string why =
      file.empty() ? "is a variable not set?" : "nothing is in " + file + "; is it the right file?";
  std::fprintf(stderr, "tarn warning: the %s is empty: %s\n", what, why.c_str());
}

void write_file(const std::string& path, const void* bytes, u64 n_bytes) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.fd() < 0 && errno == ENXIO) {
    throw Failure{kExitIo, path + ": nothing reads this pipe: start its reader first"};
  }
  if (file.fd() < 0) fail_io("cannot create", path);
  if (!file.write(static_cast<const char*>(bytes), n_bytes)) fail_io("cannot write", path);
}

void check_output(const std::string& out, const std::vector<std::string>& read) {
  namespace fs = std::filesystem;
  if (out.empty()) return;
  std::error_code ignored;  // access() or the input's reader reports it
  if (fs::is_directory(out, ignored)) {
    throw Failure{kExitIo, "cannot write " + out + ": it is a folder: name a file in it"};
  }
  for (const std::string& in : read) {
    const bool is_input =
        fs::is_regular_file(out, ignored) && fs::equivalent(out, in, ignored) && !ignored;
    if (!is_input) continue;
    throw Failure{kExitUsage, out + ": is an input, and would be overwritten: name another file"};
  }
  const bool is_there = fs::exists(out, ignored);
  const fs::path folder = fs::path(out).parent_path();
  const std::string place = is_there ? out : folder.empty() ? "." : folder.string();
  if (::access(place.c_str(), is_there ? W_OK : W_OK | X_OK) != 0) fail_io("cannot write", out);
}

}  // namespace tarn::tools
