// Goal    R24 at the device: whichever call of a start and a step fails, with whichever error, the
//         caller gets a clean error or, where the failure passed by, a whole result; nothing leaks,
//         the next attempt works, and a lost device answers nothing else ever after. A hung one is
//         lost after the limit.
// Method  one scenario through everything that platform/gpu builds on a Device; it is run once to
//         count the calls, then once for each call, each error of the driver, failing once and from
//         then on; on a GPU that registers host memory and on one that does not.
#include <doctest/doctest.h>

#include <cstring>

#include "platform/gpu/device_wait.h"
#include "platform/gpu/memory_probe.h"
#include "platform/gpu/slabs.h"
#include "platform/gpu/staging_ring.h"
#include "tests/support/fake_device.h"

namespace tarn {
namespace {

using test::FakeDevice;

// Every look at it is a tenth of a millisecond later.
class TickingClock final : public Clock {
 public:
  u64 now_ns() override { return now_ns_ += 100'000; }

 private:
  u64 now_ns_ = 0;
};

constexpr u64 kWaitNs = 10'000'000;
constexpr u64 kWeightBytes = 40000;  // ten pieces of the ring, the last one short

struct Scenario {
  std::vector<std::byte> ring_memory = std::vector<std::byte>(kStagingPieces * 4096);
  std::vector<std::byte> probe_memory = std::vector<std::byte>(8192);
  std::vector<std::byte> weights = std::vector<std::byte>(kWeightBytes);
  std::vector<std::byte> result = std::vector<std::byte>(kWeightBytes);
  u64 driver_bytes = 0;

  Scenario() {
    for (u64 i = 0; i < weights.size(); ++i) weights[i] = static_cast<std::byte>(i * 7 + i / 256);
  }

  // The weights through the ring to the device, from there by a graph to a second place, and back.
  Result<void> run(Device& device) {
    TickingClock clock;
    TARN_CHECK(device.bind_thread());
    TARN_TRY(const u64 free_bytes, device.memory_free_bytes());
    CHECK(free_bytes > 0);
    SlabCutter cut(device.facts());
    const SlabPlace first = cut.add(kWeightBytes);
    const SlabPlace second = cut.add(9 * kMiB);
    DeviceSlabs slabs;
    TARN_CHECK(slabs.reserve(device, cut));
    StagingRing ring;
    TARN_CHECK(ring.open(
        {.device = &device, .clock = &clock, .memory = ring_memory, .wait_ns_max = kWaitNs}));
    TARN_TRY(const MemoryProbe probe, probe_memory_of(device, clock, slabs.at(second)));
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
                               .wait_ns_max = kWaitNs});
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
      ended = wait_done(device, *done, clock, kWaitNs);
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

DeviceFacts without_registration() {
  DeviceFacts facts = test::kOrinFacts;
  facts.host_register = false;
  return facts;
}

TEST_CASE("a whole device carries the weights there and back") {
  for (const DeviceFacts& facts :
       {test::kOrinFacts, test::kDiscreteFacts, without_registration()}) {
    CAPTURE(facts.name.data());
    CAPTURE(facts.host_register);
    for (u64 seed = 1; seed <= 10; ++seed) {
      FakeDevice device(facts, seed);
      Scenario scenario;
      REQUIRE(scenario.run(device).has_value());
      CHECK(scenario.result == scenario.weights);
      CHECK(scenario.driver_bytes >= device.driver_takes_bytes);
      CHECK(device.leaks().empty());
    }
  }
}

TEST_CASE("every call fails in turn, with every error, once and for ever") {
  constexpr i32 kCodes[] = {kGpuOutOfMemory,       kGpuInvalidValue,   kGpuNoDevice,
                            kGpuEccUncorrectable,  kGpuIllegalAddress, kGpuLaunchTimeout,
                            kGpuMisalignedAddress, kGpuLaunchFailure,  kGpuUnknown};
  for (const DeviceFacts& facts : {test::kDiscreteFacts, without_registration()}) {
    FakeDevice whole(facts);
    REQUIRE(Scenario().run(whole).has_value());
    const u64 n_calls = whole.n_calls();
    REQUIRE(n_calls > 60);
    u64 n_clean = 0, n_lost = 0;
    for (u64 call = 1; call <= n_calls; ++call) {
      for (const i32 code : kCodes) {
        for (const bool for_ever : {false, true}) {
          FakeDevice device(facts);
          device.fail_at({.call = call, .code = code, .for_ever = for_ever});
          Scenario scenario;
          const Result<void> ran = scenario.run(device);
          CAPTURE(call);
          CAPTURE(whole.calls()[call - 1]);
          CAPTURE(code);
          CAPTURE(for_ever);
          REQUIRE(device.leaks().empty());
          const bool loses = gpu_error_class(code) == GpuErrorClass::lost;
          REQUIRE(device.is_lost() == loses);
          REQUIRE_FALSE(ran.has_value());  // nothing that failed is passed over
          REQUIRE(ran.error().hint[0] != '\0');
          REQUIRE((ran.error().status == Status::device_lost) == loses);
          if (loses) {
            ++n_lost;
            const u64 before = device.n_enqueued();
            const Result<void> again = scenario.run(device);
            REQUIRE_FALSE(again.has_value());
            REQUIRE(again.error().status == Status::device_lost);
            REQUIRE(device.n_enqueued() == before);
            REQUIRE(device.leaks().empty());
          } else if (!for_ever) {
            ++n_clean;
            REQUIRE(scenario.run(device).has_value());
            REQUIRE(scenario.result == scenario.weights);
          }
        }
      }
    }
    CHECK(n_lost == n_calls * 6 * 2);
    CHECK(n_clean == n_calls * 3);
  }
}

TEST_CASE("a GPU that hangs is lost when the wait is over") {
  FakeDevice device;
  device.hang();
  Scenario scenario;
  const Result<void> ran = scenario.run(device);
  REQUIRE_FALSE(ran.has_value());
  CHECK(ran.error().status == Status::device_lost);
  CHECK(device.is_lost());
  CHECK(device.leaks().empty());
}

TEST_CASE("the probe tells the two kinds of memory apart, or that there is one") {
  struct Case {
    const char* name;
    u64 device_bytes_per_s, shared_bytes_per_s;
    bool promotes_without_copy;
  };
  constexpr Case kCases[] = {{"Orin", 200'000'000'000, 90'000'000'000, false},
                             {"just below nine tenths", 100'000'000'000, 89'000'000'000, false},
                             {"nine tenths", 100'000'000'000, 91'000'000'000, true},
                             {"Thor", 270'000'000'000, 270'000'000'000, true}};
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    FakeDevice device;
    device.device_bytes_per_s = c.device_bytes_per_s;
    device.shared_bytes_per_s = c.shared_bytes_per_s;
    const DeviceSlab slab = device.reserve("probe", 4 * kMiB).value();
    std::vector<std::byte> host(4 * kMiB);
    TickingClock clock;
    const auto probe = probe_memory({.device = &device,
                                     .clock = &clock,
                                     .device_memory = slab.begin,
                                     .host_memory = host,
                                     .wait_ns_max = kWaitNs});
    REQUIRE(probe.has_value());
    CHECK(static_cast<f64>(probe->device_bytes_per_s) ==
          doctest::Approx(static_cast<f64>(c.device_bytes_per_s)).epsilon(0.001));
    CHECK(static_cast<f64>(probe->shared_bytes_per_s) ==
          doctest::Approx(static_cast<f64>(c.shared_bytes_per_s)).epsilon(0.001));
    CHECK(probe->promotes_without_copy() == c.promotes_without_copy);
    device.release(slab);
    CHECK(device.leaks().empty());
  }
  FakeDevice device(without_registration());
  const DeviceSlab slab = device.reserve("probe", 4096).value();
  std::vector<std::byte> host(4096);
  TickingClock clock;
  const auto probe = probe_memory({.device = &device,
                                   .clock = &clock,
                                   .device_memory = slab.begin,
                                   .host_memory = host,
                                   .wait_ns_max = kWaitNs});
  REQUIRE(probe.has_value());
  CHECK(probe->shared_bytes_per_s == 0);
  CHECK_FALSE(probe->promotes_without_copy());
  device.release(slab);
}

}  // namespace
}  // namespace tarn
