// platform/base/system_text.h
//
// The small text files in which Linux tells about itself (/proc, /sys), and the control groups this
// process lies in. `root` is "" for the real system, else a folder that holds proc/ and sys/, so
// that tests can show the files of other machines. Unreadable and senseless files answer nothing.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "platform/base/types.h"

namespace tarn {

class SystemText {
 public:
  // printf-like path below `root`. False where there is no such file; it then holds no text.
  bool read(const char* root, const char* format, ...) __attribute__((format(printf, 3, 4)));
  std::string_view view() const { return {bytes_, n_bytes_}; }

  // The number at the front of the text; none for "max" and anything else that is no number.
  std::optional<u64> number() const;
  // The number behind `key` where a line begins with it, and that line's text behind it.
  std::optional<u64> number_after(std::string_view key) const;
  std::string_view text_after(std::string_view key) const;

 private:
  char bytes_[8192];  // the largest that we read, a cgroup's memory.stat, takes about 3 KiB
  u64 n_bytes_ = 0;
};

// Digits at the front of `text` behind blanks; none without a digit and where it exceeds u64.
std::optional<u64> leading_number(std::string_view text);

enum class CgroupVersion : u8 { v1, v2 };

// Calls fn(folder, version) for every group that may limit this process: its own and all their
// parents, of the v1 hierarchy of `controller` and of v2. The folder is below `root`, which it does
// not contain; it may not exist (a container sees its path on the host).
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
