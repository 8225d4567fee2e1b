// Goal    every device name gets the answer its contract states, in a build without a GPU backend
//         and in one with it on a machine without a driver; no kernel is counted on where it cannot
//         run.
// Method  the real discovery of this build; a table of GPUs.
#include "platform/gpu/discovery.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::discovery_test {
namespace {

TEST_CASE("the CPU always answers, and a name that is none is refused") {
  const auto cpu = device_choose("cpu");
  REQUIRE(cpu.has_value());
  CHECK(cpu->facts.kind == DeviceKind::cpu);
  CHECK(cpu->facts.memory_bytes == 0);
  CHECK(cpu->why_cpu == nullptr);
  CHECK(cpu->built == gpu_is_built());
  for (const std::string name : {"", "gpu", "CPU", "cuda:0"}) {
    CAPTURE(name);
    const auto wrong = device_choose(name.c_str());
    REQUIRE_FALSE(wrong.has_value());
    CHECK(wrong.error().status == Status::invalid_config);
    CHECK(std::string(wrong.error().detail.c_str()) == name);
  }
}

TEST_CASE("auto and cuda agree: a GPU with its facts, or the CPU and an error, for one reason") {
  const auto automatic = device_choose("auto");
  REQUIRE(automatic.has_value());
  const auto cuda = device_choose("cuda");
  if (cuda) {
    CHECK(gpu_is_built());
    CHECK(cuda->facts.kind == DeviceKind::cuda);
    CHECK(cuda->facts.compute_capability >= 80);
    CHECK(cuda->facts.n_sms > 0);
    CHECK(cuda->facts.memory_bytes > 0);
    CHECK((cuda->facts.memory_free_bytes > 0) == cuda->facts.integrated);
    CHECK(automatic->facts.kind == DeviceKind::cuda);
    CHECK(automatic->why_cpu == nullptr);
    return;
  }
  CHECK(cuda.error().status == Status::unsupported);
  CHECK(automatic->facts.kind == DeviceKind::cpu);
  REQUIRE(automatic->why_cpu != nullptr);
  const std::string why = automatic->why_cpu;
  CHECK(why == cuda.error().hint);
  // A build without CUDA names the build option, one with it never does: the machine lacks it.
  CHECK((why.find("TARN_CUDA=ON") != std::string::npos) == !gpu_is_built());
  SystemDeviceMemory memory;
  const auto device = system_device_open(memory, {});
  REQUIRE_FALSE(device.has_value());
  CHECK(device.error().status == Status::unsupported);
}

TEST_CASE("a cubin runs on its own GPU and on younger ones of its major, never across to a Tegra") {
  constexpr u32 kShipped[] = {80, 86, 87, 89, 90, 100, 110, 120};
  struct Case {
    const char* name;
    u32 compute_capability;
    bool runs;
  };
  constexpr Case kCases[] = {{"RTX 3060, sm_86", 86, true},
                             {"Orin, sm_87", 87, true},
                             {"RTX 4090, sm_89", 89, true},
                             {"H100, sm_90", 90, true},
                             {"Thor, sm_110", 110, true},
                             {"RTX 5090, sm_120", 120, true},
                             {"GB10, sm_121", 121, true},
                             {"A100, sm_80", 80, true},
                             {"sm_88: takes that of 86", 88, true},
                             {"B200, sm_100", 100, true},
                             {"B300, sm_103: takes that of 100", 103, true},
                             {"Thor as CUDA 12 calls it", 101, false},
                             {"younger than all of them", 130, false},
                             {"Turing, sm_75", 75, false},
                             {"nothing", 0, false}};
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CHECK(has_kernels_for(c.compute_capability, kShipped, 0) == c.runs);
  }
  constexpr u32 kDesktopOnly[] = {86};
  CHECK_FALSE(has_kernels_for(80, kDesktopOnly, 0));
  CHECK_FALSE(has_kernels_for(87, kDesktopOnly, 0));
  constexpr u32 kOrinOnly[] = {87};
  CHECK_FALSE(has_kernels_for(89, kOrinOnly, 0));
  CHECK_FALSE(has_kernels_for(87, {}, 0));
}

TEST_CASE("PTX serves what is as young or younger, of any major") {
  constexpr u32 kShipped[] = {86, 120};
  CHECK(has_kernels_for(130, kShipped, 120));
  CHECK(has_kernels_for(121, {}, 120));
  CHECK(has_kernels_for(120, {}, 120));
  CHECK(has_kernels_for(110, {}, 90));  // a driver's JIT knows no Tegra from another
  CHECK_FALSE(has_kernels_for(110, kShipped, 120));
  CHECK_FALSE(has_kernels_for(87, kShipped, 120));
}

}  // namespace
}  // namespace tarn::discovery_test
