#include "platform/mem/available.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include "platform/base/checked.h"
#include "platform/mem/reserve.h"

namespace tarn {
namespace {

constexpr u64 kNoLimit = ~u64{0};
constexpr u64 kPathBytesMax = 2048;

struct Text {
  char bytes[8192];  // the largest of these files, a cgroup's memory.stat, takes about 3 KiB
  u64 n_bytes = 0;
  std::string_view view() const { return {bytes, n_bytes}; }
};

bool read_text(const char* path, Text& text) {
  text.n_bytes = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = 0;
  while (text.n_bytes < sizeof text.bytes &&
         (n = read(fd, text.bytes + text.n_bytes, sizeof text.bytes - text.n_bytes)) > 0) {
    text.n_bytes += static_cast<u64>(n);
  }
  close(fd);
  return n >= 0;
}

// The digits at the front of `text`; "max" and anything else that is no number is no value.
std::optional<u64> leading_number(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  Checked value(0);
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    value = value * Checked(10) + Checked(static_cast<u64>(c - '0'));
  }
  return value.get();
}

// The number after `key` where a line begins with it.
std::optional<u64> number_after(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (line.substr(0, key.size()) == key) return leading_number(line.substr(key.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

std::optional<u64> number_in(const char* folder, const char* file) {
  char path[kPathBytesMax];
  Text text;
  const int length = std::snprintf(path, sizeof path, "%s/%s", folder, file);
  if (length < 0 || static_cast<u64>(length) >= sizeof path) return std::nullopt;
  return read_text(path, text) ? leading_number(text.view()) : std::nullopt;
}

struct CgroupKeys {
  const char* limit;
  const char* usage;
  std::string_view inactive_file, active_file;  // clean file pages go before anything is killed
};
constexpr CgroupKeys kCgroup1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file ", "total_active_file "};
constexpr CgroupKeys kCgroup2 = {"memory.max", "memory.current", "inactive_file ", "active_file "};

u64 left_in_cgroup(const char* folder, const CgroupKeys& keys) {
  const auto limit = number_in(folder, keys.limit);
  const auto usage = number_in(folder, keys.usage);
  if (!limit || !usage) return kNoLimit;
  char path[kPathBytesMax];
  Text stat;
  u64 file_bytes = 0;
  const int length = std::snprintf(path, sizeof path, "%s/memory.stat", folder);
  if (length > 0 && static_cast<u64>(length) < sizeof path && read_text(path, stat)) {
    file_bytes = number_after(stat.view(), keys.inactive_file).value_or(0) +
                 number_after(stat.view(), keys.active_file).value_or(0);
  }
  const u64 used = *usage - std::min(*usage, file_bytes);
  return *limit - std::min(*limit, used);
}

// The tightest limit from `group` up to the mount. In a container the path that /proc shows may not
// exist below the mount: those folders answer nothing, and the mount itself holds the limit.
u64 left_in_cgroup_tree(const char* mount, std::string_view group, const CgroupKeys& keys) {
  u64 left = kNoLimit;
  char folder[kPathBytesMax];
  for (;;) {
    while (!group.empty() && group.back() == '/') group.remove_suffix(1);
    const int length = std::snprintf(folder, sizeof folder, "%s%.*s", mount,
                                     static_cast<int>(group.size()), group.data());
    if (length > 0 && static_cast<u64>(length) < sizeof folder) {
      left = std::min(left, left_in_cgroup(folder, keys));
    }
    if (group.empty()) return left;
    group = group.substr(0, group.find_last_of('/'));
  }
}

// Lines of /proc/self/cgroup: "4:memory:/a/b" (v1), "0::/a/b" (v2).
u64 left_in_cgroups(const char* root) {
  char path[kPathBytesMax];
  Text text;
  std::snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  if (!read_text(path, text)) return kNoLimit;
  u64 left = kNoLimit;
  std::string_view rest = text.view();
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const auto first = line.find(':');
    const auto second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto group = line.substr(second + 1);
    if (controllers.empty()) {
      std::snprintf(path, sizeof path, "%s/sys/fs/cgroup", root);
      left = std::min(left, left_in_cgroup_tree(path, group, kCgroup2));
    } else if (controllers == "memory") {
      std::snprintf(path, sizeof path, "%s/sys/fs/cgroup/memory", root);
      left = std::min(left, left_in_cgroup_tree(path, group, kCgroup1));
    }
  }
  return left;
}

u64 available_in_machine(const char* root) {
  char path[kPathBytesMax];
  Text text;
  std::snprintf(path, sizeof path, "%s/proc/meminfo", root);
  if (read_text(path, text)) {
    const auto kib = number_after(text.view(), "MemAvailable:");
    if (kib) return (Checked(*kib) * Checked(kKiB)).get().value_or(kNoLimit);
  }
  struct sysinfo info {};  // no /proc: what is free without reclaiming anything
  return sysinfo(&info) == 0 ? u64{info.freeram} * info.mem_unit : 0;
}

// What this process may still map: RLIMIT_AS against all its mappings, RLIMIT_DATA against the
// private writable ones (fields 1 and 6 of statm, in pages).
u64 left_in_rlimits() {
  rlimit address_space{RLIM_INFINITY, 0};
  rlimit data{RLIM_INFINITY, 0};
  getrlimit(RLIMIT_AS, &address_space);
  getrlimit(RLIMIT_DATA, &data);
  if (address_space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY) return kNoLimit;
  Text text;
  if (!read_text("/proc/self/statm", text)) return kNoLimit;
  const u64 page_bytes = static_cast<u64>(sysconf(_SC_PAGESIZE));
  u64 fields[6] = {};
  std::string_view rest = text.view();
  for (u64& field : fields) {
    field = leading_number(rest).value_or(0) * page_bytes;
    rest.remove_prefix(std::min(rest.size(), rest.find(' ')));
    rest.remove_prefix(rest.empty() ? 0 : 1);
  }
  u64 left = kNoLimit;
  if (address_space.rlim_cur != RLIM_INFINITY) {
    left = address_space.rlim_cur - std::min<u64>(address_space.rlim_cur, fields[0]);
  }
  if (data.rlim_cur != RLIM_INFINITY) {
    left = std::min<u64>(left, data.rlim_cur - std::min<u64>(data.rlim_cur, fields[5]));
  }
  return left;
}

}  // namespace

u64 pages_available_under(const char* root) {
  return std::min(available_in_machine(root), left_in_cgroups(root));
}

u64 memory_available_under(const char* root) {
  return std::min(pages_available_under(root), left_in_rlimits());
}

u64 memory_available_bytes() { return memory_available_under(""); }

}  // namespace tarn
