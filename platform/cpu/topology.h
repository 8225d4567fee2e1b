// Facts of the CPU: its name for reports, the cores we may use, the instruction sets we can run.
#pragma once

#include <array>
#include <span>

#include "platform/base/types.h"

namespace tarn {

struct CpuFeatures {
  bool avx2 = false;    // avx2, f16c and fma
  bool avx512 = false;  // f, bw, vl, dq and vnni, with the OS saving their state
  bool neon_dotprod = false;
  bool crc32c = false;  // x86's SSE4.2 or Arm's CRC32 instructions
};
CpuFeatures cpu_features();

struct CpuTopology {
  std::array<char, 64> model_name{};
  u32 n_cpus = 0;                  // CPUs that this process may use (affinity, cgroup quota)
  std::array<u32, 64> cpus{};      // their numbers, one per physical core first
  u32 n_physical_cores = 0;        // physical cores among them
  u64 l2_bytes = 0, l3_bytes = 0;  // 0 where unknown
};
CpuTopology cpu_topology();
inline constexpr u32 kMaskCpus = 8192;  // the kernel's own limit for x86 and arm64
bool process_may_run_on(u32 cpu);

}  // namespace tarn
