// One scenario through everything that platform/gpu builds on a Device: slabs, the probe, weights
// through the staging ring, a captured graph, copies both ways. The fake runs it with every call
// failing in turn; a real GPU runs it as it is.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "platform/gpu/device_wait.h"
#include "platform/gpu/memory_probe.h"
#include "platform/gpu/slabs.h"
#include "platform/gpu/staging_ring.h"

namespace tarn::test {

// Every look at it is a tenth of a millisecond later, and no thread sleeps.
class TickingClock final : public Clock {
 public:
  u64 now_ns() override { return now_ns_ += 100'000; }
  void nap_ns(u64 ns) override { now_ns_ += ns; }

 private:
  u64 now_ns_ = 0;
};

inline constexpr u64 kWaitNs = 10'000'000;
inline constexpr u64 kWeightBytes = 40000;  // ten pieces of the ring, the last one short

struct Scenario {
  // Host memory that is registered: exactly so long, so that a read past it is seen.
  std::vector<std::byte> own_ring_memory = std::vector<std::byte>(kStagingPieces * 4096);
  std::vector<std::byte> own_probe_memory = std::vector<std::byte>(8192);
  std::span<std::byte> ring_memory{own_ring_memory}, probe_memory{own_probe_memory};
  MemoryProbe probe{};
  u64 wait_ns_max = kWaitNs;
  std::vector<std::byte> weights = std::vector<std::byte>(kWeightBytes);
  std::vector<std::byte> result = std::vector<std::byte>(kWeightBytes);
  u64 driver_bytes = 0;

  Scenario() {
    for (u64 i = 0; i < weights.size(); ++i) weights[i] = static_cast<std::byte>(i * 7 + i / 256);
  }

  // The weights through the ring to the device, from there by a graph to a second place, and back.
  Result<void> run(Device& device, Clock& clock) {
    TARN_CHECK(device.bind_thread());
    TARN_TRY(const u64 free_bytes, device.memory_free_bytes());
    CHECK(free_bytes > 0);
    SlabCutter cut(device.facts());
    const SlabOffset first = cut.add(kWeightBytes);
    const SlabOffset second = cut.add(std::max<u64>(9 * kMiB, probe_memory.size()));
    DeviceSlabs slabs;
    TARN_CHECK(slabs.reserve(device, cut));
    StagingRing ring;
    TARN_CHECK(ring.open(
        {.device = &device, .clock = &clock, .memory = ring_memory, .wait_ns_max = wait_ns_max}));
    TARN_TRY(probe, probe_memory_of(device, clock, slabs.at(second)));
    CHECK(probe.device_bytes_per_s > 0);
    for (u64 at = 0; at < kWeightBytes;) {
      TARN_TRY(const auto piece, ring.next());
      const u64 n_bytes = std::min<u64>(piece.size(), kWeightBytes - at);
      std::memcpy(piece.data(), weights.data() + at, n_bytes);
      ring.send(slabs.at(first) + at, n_bytes);
      at += n_bytes;
    }
    TARN_CHECK(ring.finish());
    return step(device, clock, slabs.at(first), slabs.at(second));
  }

  Result<MemoryProbe> probe_memory_of(Device& device, Clock& clock, DeviceBytes memory) {
    return tarn::probe_memory({.device = &device,
                               .clock = &clock,
                               .device_memory = memory,
                               .host_memory = probe_memory,
                               .wait_ns_max = wait_ns_max});
  }

  Result<void> step(Device& device, Clock& clock, DeviceBytes from, DeviceBytes to) {
    GpuStream* compute = device.stream(StreamId::compute);
    TARN_CHECK(device.begin_capture(compute));
    device.fill(to, 0, kWeightBytes, compute);
    device.copy(to, from, kWeightBytes, compute);
    const Result<GpuGraph*> graph = device.end_capture(compute);
    if (!graph) return fail(graph.error());
    const Result<GpuEvent*> done = device.create_event();
    Result<void> ended;
    if (done) {
      device.launch(*graph, compute);
      device.copy_out(result, to, compute);
      device.record(*done, compute);
      ended = wait_done(device, *done, clock, wait_ns_max);
      if (ended) ended = device.check();
      device.destroy_event(*done);
    } else {
      ended = fail(done.error());
    }
    device.destroy_graph(*graph);
    TARN_CHECK(ended);
    TARN_TRY(driver_bytes, device.driver_bytes(0));
    return {};
  }
};

}  // namespace tarn::test
