#include "platform/mem/available.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>

#include "platform/base/checked.h"
#include "platform/base/system_text.h"
#include "platform/mem/reserve.h"

namespace tarn {
namespace {

constexpr u64 kNoLimit = ~u64{0};

struct CgroupKeys {
  const char* limit;
  const char* usage;
  std::string_view inactive_file, active_file;  // dropped before a process is killed
};
constexpr CgroupKeys kCgroup1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file ", "total_active_file "};
constexpr CgroupKeys kCgroup2 = {"memory.max", "memory.current", "inactive_file ", "active_file "};

u64 left_in_cgroup(const char* root, const char* folder, const CgroupKeys& keys) {
  SystemText text;
  if (!text.read(root, "%s/%s", folder, keys.limit)) return kNoLimit;
  const auto limit = text.number();
  if (!limit || !text.read(root, "%s/%s", folder, keys.usage)) return kNoLimit;
  const auto usage = text.number();
  if (!usage) return kNoLimit;
  u64 file_bytes = 0;
  if (text.read(root, "%s/memory.stat", folder)) {
    file_bytes = text.number_after(keys.inactive_file).value_or(0) +
                 text.number_after(keys.active_file).value_or(0);
  }
  const u64 used = *usage - std::min(*usage, file_bytes);
  return *limit - std::min(*limit, used);
}

u64 left_in_cgroups(const char* root) {
  u64 left = kNoLimit;
  for_each_cgroup(root, "memory", [&](const char* folder, CgroupVersion version) {
    const CgroupKeys& keys = version == CgroupVersion::v1 ? kCgroup1 : kCgroup2;
    left = std::min(left, left_in_cgroup(root, folder, keys));
  });
  return left;
}

u64 available_in_machine(const char* root) {
  SystemText text;
  if (text.read(root, "/proc/meminfo")) {
    const auto kib = text.number_after("MemAvailable:");
    if (kib) return (Checked(*kib) * Checked(kKiB)).get().value_or(kNoLimit);
  }
  struct sysinfo info {};  // no /proc: free memory without reclaiming anything
  return sysinfo(&info) == 0 ? u64{info.freeram} * info.mem_unit : 0;
}

u64 left_below(const rlimit& limit, u64 used_bytes) {
  if (limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return limit.rlim_cur - std::min<u64>(limit.rlim_cur, used_bytes);
}

// Bytes that this process may still map: RLIMIT_AS less all its mappings, RLIMIT_DATA less the
// private writable ones (fields 1 and 6 of statm, in pages).
u64 left_in_rlimits() {
  rlimit address_space{RLIM_INFINITY, 0};
  rlimit data{RLIM_INFINITY, 0};
  getrlimit(RLIMIT_AS, &address_space);
  getrlimit(RLIMIT_DATA, &data);
  SystemText text;
  if (!text.read("", "/proc/self/statm")) return kNoLimit;
  const u64 page_bytes = static_cast<u64>(sysconf(_SC_PAGESIZE));
  u64 fields[6] = {};
  std::string_view rest = text.view();
  for (u64& field : fields) {
    field = leading_number(rest).value_or(0) * page_bytes;
    rest.remove_prefix(std::min(rest.size(), rest.find(' ', 1)));  // the blank leads the next one
  }
  return std::min(left_below(address_space, fields[0]), left_below(data, fields[5]));
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
