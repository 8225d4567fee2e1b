#include "tools/support/memory_use.h"

#include <sys/resource.h>

#include <cstdio>

namespace tarn::tools {

u64 peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<u64>(usage.ru_maxrss) * 1024;
}

void reset_peak_rss() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return;
  std::fputs("5", file);  // proc(5): reset the peak resident set size
  std::fclose(file);
}

}  // namespace tarn::tools
