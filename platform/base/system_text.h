// Reads the small text files of Linux (/proc, /sys) and finds the control groups of this process.
// `root` is "" for the real system, else a folder that holds proc/ and sys/, so that tests can use
// the files of other machines. A file that cannot be read or parsed counts as absent.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "platform/base/types.h"

namespace tarn {

class SystemText {
 public:
  // Reads the file at a printf-like path below `root`. Returns false, and holds no text, if there
  // is none.
  bool read(const char* root, const char* format, ...) __attribute__((format(printf, 3, 4)));
  std::string_view view() const { return {bytes_, n_bytes_}; }

  // Returns the number at the front of the text, or none where there is no number ("max").
  std::optional<u64> number() const;
  // Return what follows `key` in the line that begins with `key`: a number, or the text.
  std::optional<u64> number_after(std::string_view key) const;
  std::string_view text_after(std::string_view key) const;

 private:
  char bytes_[8192];  // the largest that we read, a cgroup's memory.stat, takes about 3 KiB
  u64 n_bytes_ = 0;
};

// Parses the digits at the front of `text`, after blanks; none without a digit or beyond u64.
std::optional<u64> leading_number(std::string_view text);

enum class CgroupVersion : u8 { v1, v2 };

// Calls fn(folder, version) for every group that may limit this process: its own groups and all
// their parents, in the v1 hierarchy of `controller` and in v2. The folder is relative to `root`.
// It may be missing, because a container sees its path on the host.
using CgroupFn = void (*)(void* context, const char* folder, CgroupVersion version);
void for_each_cgroup(const char* root, std::string_view controller, CgroupFn fn, void* context);

template <class Fn>
void for_each_cgroup(const char* root, std::string_view controller, Fn&& fn) {
  for_each_cgroup(
      root, controller,
      [](void* context, const char* folder, CgroupVersion version) {
        (*static_cast<std::remove_reference_t<Fn>*>(context))(folder, version);
      },
      &fn);
}

}  // namespace tarn
