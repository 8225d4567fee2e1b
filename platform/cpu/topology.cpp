#include "platform/cpu/topology.h"

#include <sched.h>

#include <algorithm>
#include <string_view>

#include "platform/base/checked.h"
#include "platform/base/system_text.h"
#include "platform/cpu/topology_under.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tarn {
namespace {

constexpr u32 kCpusMax = 64;

#if defined(__x86_64__)

struct CpuidAnswer {
  u32 eax = 0, ebx = 0, ecx = 0, edx = 0;  // all 0 where the CPU does not know the leaf
};

CpuidAnswer cpuid(u32 leaf, u32 subleaf = 0) {
  CpuidAnswer answer;
  __get_cpuid_count(leaf, subleaf, &answer.eax, &answer.ebx, &answer.ecx, &answer.edx);
  return answer;
}

constexpr bool bit(u32 word, u32 index) { return (word >> index & 1) != 0; }

// The register states that the OS saves on a context switch. AVX is fatal where it saves none for
// it.
u64 saved_states() {
  u32 low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return u64{high} << 32 | low;
}

CpuFeatures detect() {
  const CpuidAnswer basic = cpuid(1);
  const CpuidAnswer extended = cpuid(7);
  const bool osxsave = bit(basic.ecx, 27);
  CpuFeatures features;
  features.crc32c = bit(basic.ecx, 20);
  if (!osxsave || !bit(basic.ecx, 28)) return features;
  constexpr u64 kYmm = 0x6, kZmm = 0xE6;  // SSE and AVX; and opmask, upper ZMM halves, ZMM16-31
  const u64 saved = saved_states();
  features.avx2 =
      (saved & kYmm) == kYmm && bit(extended.ebx, 5) && bit(basic.ecx, 29) && bit(basic.ecx, 12);
  features.avx512 = features.avx2 && (saved & kZmm) == kZmm && bit(extended.ebx, 16) &&  // F
                    bit(extended.ebx, 17) && bit(extended.ebx, 30) &&                    // DQ, BW
                    bit(extended.ebx, 31) && bit(extended.ecx, 11);                      // VL, VNNI
#ifdef TARN_AVX512_EMULATED
  features.avx512 = features.avx2;  // toolchain/isa.cmake
#endif
  return features;
}

void read_model_name(const char*, std::span<char> name) {
  char brand[49] = {};  // three leaves of 16 characters
  for (u32 i = 0; i < 3; ++i) {
    const CpuidAnswer part = cpuid(0x80000002u + i);
    const u32 words[4] = {part.eax, part.ebx, part.ecx, part.edx};
    __builtin_memcpy(brand + i * 16, words, sizeof words);
  }
  std::string_view text = brand;
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.empty()) text = "x86-64";
  std::copy_n(text.data(), std::min(text.size(), name.size() - 1), name.data());
}

#else

CpuFeatures detect() {
  CpuFeatures features;
#if defined(__aarch64__)
  features.neon_dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  features.crc32c = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
  return features;
}

// A board's name stands in the device tree; its cores have numbers only.
void read_model_name(const char* root, std::span<char> name) {
  SystemText text;
  std::string_view model = "aarch64";
  if (text.read(root, "/proc/device-tree/model"))
    model = text.view().substr(0, text.view().find('\0'));
  std::copy_n(model.data(), std::min(model.size(), name.size() - 1), name.data());
}

#endif

// The number of CPUs whose time the control groups allow; at least one.
u32 cpus_in_quota(const char* root) {
  u64 n_cpus = kMaskCpus;
  for_each_cgroup(root, "cpu", [&](const char* folder, CgroupVersion version) {
    SystemText text;
    std::optional<u64> quota_us, period_us;
    if (version == CgroupVersion::v2) {  // "200000 100000", or "max 100000"
      if (text.read(root, "%s/cpu.max", folder)) quota_us = text.number();
      const auto blank = text.view().find(' ');
      if (quota_us && blank != text.view().npos) {
        period_us = leading_number(text.view().substr(blank));
      }
    } else {  // a quota of -1 is none
      if (text.read(root, "%s/cpu.cfs_quota_us", folder)) quota_us = text.number();
      if (quota_us && text.read(root, "%s/cpu.cfs_period_us", folder)) period_us = text.number();
    }
    if (!quota_us || !period_us || *quota_us == 0 || *period_us == 0) return;
    n_cpus = std::min(n_cpus, std::max<u64>(1, *quota_us / *period_us));
  });
  return static_cast<u32>(n_cpus);
}

// The core of a CPU; two hardware threads of one core give the same number.
u64 core_of(const char* root, u32 cpu) {
  SystemText text;
  const auto number_of = [&](const char* file) {
    const bool there = text.read(root, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu, file);
    return there ? text.number() : std::nullopt;
  };
  const auto core = number_of("core_id");
  const auto package = number_of("physical_package_id");
  if (!core) return u64{1} << 63 | cpu;  // unknown: a core of its own
  return package.value_or(0) << 32 | *core;
}

// Parses a cache's size as /sys writes it, "1024K".
u64 cache_bytes(const char* root, u32 cpu, u32 level) {
  SystemText text;
  for (u32 index = 0; index < 8; ++index) {
    constexpr const char* kFolder = "/sys/devices/system/cpu/cpu%u/cache/index%u/%s";
    if (!text.read(root, kFolder, cpu, index, "level")) return 0;
    if (text.number() != level) continue;
    if (!text.read(root, kFolder, cpu, index, "size")) return 0;
    const u64 number = text.number().value_or(0);
    const u64 unit = text.view().find('M') != text.view().npos ? kMiB : kKiB;
    return (Checked(number) * Checked(unit)).get().value_or(0);
  }
  return 0;
}

}  // namespace

CpuFeatures cpu_features() { return detect(); }

CpuTopology cpu_topology_under(const char* root, std::span<const u32> allowed) {
  CpuTopology topology;
  read_model_name(root, topology.model_name);

  // First one CPU of every core, then their siblings.
  std::array<u32, kCpusMax> siblings{};
  std::array<u64, kCpusMax> cores{};
  u32 n_first = 0, n_siblings = 0;
  for (const u32 cpu : allowed) {
    if (n_first == kCpusMax) break;
    const u64 core = core_of(root, cpu);
    const u64* end = cores.data() + n_first;
    if (std::find<const u64*>(cores.data(), end, core) == end) {
      cores[n_first] = core;
      topology.cpus[n_first++] = cpu;
    } else if (n_siblings < kCpusMax) {
      siblings[n_siblings++] = cpu;
    }
  }
  u32 n_cpus = n_first;
  for (u32 i = 0; i < n_siblings && n_cpus < kCpusMax; ++i) topology.cpus[n_cpus++] = siblings[i];

  topology.n_cpus = std::min(n_cpus, cpus_in_quota(root));
  topology.n_physical_cores = std::min(n_first, topology.n_cpus);
  if (n_cpus > 0) {
    topology.l2_bytes = cache_bytes(root, topology.cpus[0], 2);
    topology.l3_bytes = cache_bytes(root, topology.cpus[0], 3);
  }
  return topology;
}

namespace {

// A mask of the standard size is refused on machines with more than 1,024 CPUs.
struct CpuMask {
  alignas(cpu_set_t) unsigned char bits[kMaskCpus / 8] = {};
  bool is_known = sched_getaffinity(0, sizeof bits, reinterpret_cast<cpu_set_t*>(bits)) == 0;

  bool has(u32 cpu) const {
    return is_known && cpu < kMaskCpus &&
           CPU_ISSET_S(cpu, sizeof bits, reinterpret_cast<const cpu_set_t*>(bits));
  }
};

}  // namespace

CpuTopology cpu_topology() {
  const CpuMask mask;
  std::array<u32, 2 * kCpusMax> allowed{};  // room for the siblings of the cores that count
  u32 n_allowed = 0;
  for (u32 cpu = 0; cpu < kMaskCpus && n_allowed < allowed.size(); ++cpu) {
    if (mask.has(cpu)) allowed[n_allowed++] = cpu;
  }
  if (n_allowed == 0) n_allowed = 1;  // we run somewhere
  return cpu_topology_under("", std::span(allowed).first(n_allowed));
}

bool process_may_run_on(u32 cpu) { return CpuMask().has(cpu); }

}  // namespace tarn
