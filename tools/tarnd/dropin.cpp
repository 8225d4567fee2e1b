#include "tools/tarnd/dropin.h"

#include <string_view>

#include "platform/base/types.h"

namespace tarn::daemon {
namespace {

constexpr u64 kMiB = u64{1024} * 1024;
// The program, its libraries, stacks and the kernel's own records of its memory: 64 MiB, and a 32nd
// of the plan (page tables take a 512th).
constexpr u64 kProgramBytes = 64 * kMiB;
constexpr u64 kPlanShare = 32;
constexpr u64 kStopMarginSeconds = 3;

u64 host_bytes(const tarn_plan& plan) {
  u64 bytes = 0;
  for (u32 i = 0; i < plan.n_regions; ++i) {
    const tarn_region& region = plan.regions[i];
    if (std::string_view(region.space) == "host") bytes += region.bytes;
  }
  return bytes;
}

// "123M": what systemd reads as MiB.
std::string in_mib(u64 bytes) { return std::to_string((bytes + kMiB - 1) / kMiB) + "M"; }

// A path as systemd takes it: quoted, with its specifiers doubled.
std::string quoted(const std::string& path) {
  std::string text = "\"";
  for (const char c : path) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '%') text += '%';
    text += c;
  }
  return text + '"';
}

// Devices of desktops, servers and Jetson boards. Systemd skips those that a machine lacks.
constexpr const char* kGpuLines =
    "PrivateDevices=no\n"
    "DeviceAllow=char-nvidia* rw\n"
    "DeviceAllow=char-nvhost* rw\n"
    "DeviceAllow=char-nvgpu* rw\n"
    "DeviceAllow=/dev/nvmap rw\n"
    "SupplementaryGroups=video\n"
    "# NVIDIA's driver maps memory that is written and executed.\n"
    "MemoryDenyWriteExecute=no\n";

constexpr const char* kTcpLines =
    "PrivateNetwork=no\n"
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6\n"
    "IPAddressAllow=";

}  // namespace

std::string dropin_of(const DropinFacts& facts) {
  const u64 planned = host_bytes(facts.plan) + facts.network_bytes;
  std::string text =
      "# Written by tarnd --dropin. Write it anew when the model, the configuration or tarnd "
      "changes.\n[Service]\n";
  text += "MemoryMax=" + in_mib(planned + planned / kPlanShare + kProgramBytes) + "\n";
  text += "MemorySwapMax=0\n";
  text += "LimitMEMLOCK=" + in_mib(planned + kProgramBytes) + "\n";
  text += "LimitNOFILE=" + std::to_string(facts.n_descriptors) + "\n";
  text += "TimeoutStopSec=" + std::to_string(facts.stop_s + kStopMarginSeconds) + "\n";
  if (!facts.store_dir.empty()) text += "ReadWritePaths=" + quoted(facts.store_dir) + "\n";
  if (facts.uses_gpu) text += kGpuLines;
  if (!facts.tcp_peers.empty()) text += kTcpLines + facts.tcp_peers + "\n";
  return text;
}

}  // namespace tarn::daemon
