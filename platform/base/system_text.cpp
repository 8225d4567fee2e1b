#include "platform/base/system_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "platform/base/checked.h"
#include "platform/base/descriptor.h"

namespace tarn {
namespace {

constexpr u64 kPathBytesMax = 2048;

bool fits(int length) { return length >= 0 && static_cast<u64>(length) < kPathBytesMax; }

// Every ancestor of `group`, itself first and the mount last.
void visit_ancestors(const char* mount, std::string_view group, CgroupVersion version, CgroupFn fn,
                     void* context) {
  char folder[kPathBytesMax];
  for (;;) {
    while (!group.empty() && group.back() == '/') group.remove_suffix(1);
    if (fits(std::snprintf(folder, sizeof folder, "%s%.*s", mount, static_cast<int>(group.size()),
                           group.data()))) {
      fn(context, folder, version);
    }
    if (group.empty()) return;
    group = group.substr(0, group.find_last_of('/'));
  }
}

// Is `controller` in a list such as "cpu,cpuacct"?
bool lists(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const auto first = controllers.substr(0, controllers.find(','));
    if (first == controller) return true;
    controllers.remove_prefix(std::min(controllers.size(), first.size() + 1));
  }
  return false;
}

}  // namespace

std::optional<u64> leading_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  Checked value(0);
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    value = value * Checked(10) + Checked(static_cast<u64>(c - '0'));
  }
  return value.get();
}

bool SystemText::read(const char* root, const char* format, ...) {
  n_bytes_ = 0;
  char path[kPathBytesMax];
  const int root_length = std::snprintf(path, sizeof path, "%s", root);
  if (!fits(root_length)) return false;
  const u64 used = static_cast<u64>(root_length);
  std::va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(path + used, sizeof path - used, format, arguments);
  va_end(arguments);
  if (length < 0 || used + static_cast<u64>(length) >= sizeof path) return false;

  const int fd = above_standard(::open(path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return false;
  ssize_t n = 0;
  while (n_bytes_ < sizeof bytes_ &&
         (n = ::read(fd, bytes_ + n_bytes_, sizeof bytes_ - n_bytes_)) > 0) {
    n_bytes_ += static_cast<u64>(n);
  }
  ::close(fd);
  return n >= 0;
}

std::optional<u64> SystemText::number() const { return leading_number(view()); }

std::string_view SystemText::text_after(std::string_view key) const {
  std::string_view text = view();
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (line.substr(0, key.size()) == key) return line.substr(key.size());
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

std::optional<u64> SystemText::number_after(std::string_view key) const {
  return leading_number(text_after(key));
}

// Lines of /proc/self/cgroup: "4:cpu,cpuacct:/a/b" (v1), "0::/a/b" (v2).
void for_each_cgroup(const char* root, std::string_view controller, CgroupFn fn, void* context) {
  SystemText text;
  if (!text.read(root, "/proc/self/cgroup")) return;
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
      visit_ancestors("/sys/fs/cgroup", group, CgroupVersion::v2, fn, context);
    } else if (lists(controllers, controller)) {
      char mount[64];
      std::snprintf(mount, sizeof mount, "/sys/fs/cgroup/%.*s", static_cast<int>(controller.size()),
                    controller.data());
      visit_ancestors(mount, group, CgroupVersion::v1, fn, context);
    }
  }
}

}  // namespace tarn
