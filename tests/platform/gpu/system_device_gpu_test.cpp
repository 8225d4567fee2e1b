// Goal    the GPU of this machine, where there is one and this build can use it, keeps the contract
//         of Device: what the fake is tested with runs on it for real.
// Method  the scenario of the fault tests on the system's device, twice, in host memory of
//         SystemReserve; what is not there afterwards is what was there before.
#include <doctest/doctest.h>

#include <string>

#include "platform/mem/reserve.h"
#include "tests/platform/gpu/device_scenario.h"
#include "tests/support/skip.h"

namespace tarn::system_device_gpu_test {
namespace {

TEST_CASE("the weights go to this machine's GPU and come back") {
  SystemDeviceMemory memory;
  const Result<Device*> opened = system_device_open(memory, {});
  if (!opened) {
    CHECK(opened.error().status == Status::unsupported);
    TARN_SKIP(opened.error().hint);
  }
  Device& device = **opened;
  MESSAGE(std::string(device.facts().name.data()), ", sm_", device.facts().compute_capability,
          std::string(device.facts().integrated ? ", integrated" : ", discrete"));
  SystemReserve reserve;
  constexpr u64 kRingBytes = 4 * kMiB;
  const u64 n_bytes = probe_bytes(device.facts());
  const auto host =
      reserve.reserve({.name = "test", .bytes = kRingBytes + n_bytes, .huge_pages = false});
  REQUIRE(host.has_value());
  SystemClock clock;
  for (u32 i = 0; i < 2; ++i) {
    test::Scenario scenario;
    scenario.ring_memory = host->bytes.first(kRingBytes);
    scenario.probe_memory = host->bytes.subspan(kRingBytes, n_bytes);
    scenario.wait_ns_max = 10'000'000'000;
    const Result<void> ran = scenario.run(device, clock);
    if (!ran) FAIL(ran.error().hint, " ", ran.error().detail.c_str());
    CHECK(scenario.result == scenario.weights);
    MESSAGE("device memory ", scenario.probe.device_bytes_per_s / 1'000'000, " MB/s, shared ",
            scenario.probe.shared_bytes_per_s / 1'000'000, " MB/s, driver ",
            scenario.driver_bytes / kMiB, " MiB");
    CHECK(device.graph_use().n_graphs == 0);
    CHECK(device.graph_use().bytes == 0);
  }
  CHECK_FALSE(device.is_lost());
  system_device_close(&device);
  reserve.release(host->bytes);
}

}  // namespace
}  // namespace tarn::system_device_gpu_test
