#include "tools/tarnd/descriptors.h"

#include <sys/resource.h>

#include <string>

#include "tools/support/exit_code.h"

namespace tarn::daemon {

void raise_descriptor_limit(u32 connections_max) {
  const u64 needed = descriptors_needed(connections_max);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const u64 before = limit.rlim_cur;
  limit.rlim_cur = needed;
  if (limit.rlim_max >= needed && setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  const std::string figure = std::to_string(needed);
  const u64 others = descriptors_needed(0);
  const std::string lower =
      before > others ? ", or lower daemon.connections_max to " + std::to_string(before - others)
                      : "";
  throw tools::Failure{tools::kExitRefused,
                       "daemon.connections_max = " + std::to_string(connections_max) + " needs " +
                           figure + " descriptors, and this process may open " +
                           std::to_string(before) + ": raise the limit (ulimit -n " + figure +
                           ", LimitNOFILE=" + figure + " in the unit)" + lower};
}

}  // namespace tarn::daemon
