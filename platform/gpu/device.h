// platform/gpu/device.h
//
// What a GPU is to the runtime. platform/gpu/cuda and platform/gpu/none implement it; CMake links
// one of them (absence is a folder). This build has no GPU ops yet: discovery and the budget are
// all that the plan needs to know.
#pragma once

#include <array>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

enum class DeviceKind : u8 { cpu, cuda };

struct DeviceFacts {
  DeviceKind kind = DeviceKind::cpu;
  std::array<char, 64> name{};
  bool integrated = false;      // shares its memory with the CPU
  u64 memory_bytes = 0;         // device memory in all; 0 for the CPU
  u64 memory_free_bytes = 0;
};

// "cpu" always works; "cuda" fails with the reason where this build or this machine has no GPU;
// "auto" takes the GPU if there is one and says on `why_cpu` why not otherwise.
struct DeviceChoice {
  DeviceFacts facts{};
  const char* why_cpu = nullptr;
};
Result<DeviceChoice> device_choose(const char* wanted);

}  // namespace tarn
