// Goal    R24 at the device: whichever call of a start and a step fails, with whichever error, the
//         caller gets a clean error or, where the failure passed by, a whole result; nothing leaks,
//         the next attempt works, and a lost device answers nothing else ever after. A hung one is
//         lost after the limit.
// Method  one scenario through everything that platform/gpu builds on a Device; it is run once to
//         count the calls, then once for each call, each error of the driver, failing once and from
//         then on; on a GPU that registers host memory and on one that does not.
#include <doctest/doctest.h>

#include "tests/platform/gpu/device_scenario.h"
#include "tests/support/fake_device.h"
#include "tests/support/slack_clock.h"
#include "tests/support/slow_build.h"

namespace tarn::gpu_faults_test {
namespace {

using test::FakeDevice;

using test::kWaitNs;
using test::Scenario;
using test::TickingClock;

Result<void> run(Scenario& scenario, Device& device) {
  TickingClock clock;
  return scenario.run(device, clock);
}

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
      REQUIRE(run(scenario, device).has_value());
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
    Scenario unharmed;
    REQUIRE(run(unharmed, whole).has_value());
    const u64 n_calls = whole.n_calls();
    REQUIRE(n_calls > 60);
    u64 n_clean = 0, n_lost = 0;
    for (u64 call = 1; call <= n_calls; ++call) {
      for (const i32 code : kCodes) {
        if (test::kSlowBuild && code != kGpuOutOfMemory && code != kGpuInvalidValue &&
            code != kGpuIllegalAddress) {
          continue;  // one of each class takes every way that there is
        }
        for (const bool for_ever : {false, true}) {
          FakeDevice device(facts);
          device.fail_at({.call = call, .code = code, .for_ever = for_ever});
          Scenario scenario;
          const Result<void> ran = run(scenario, device);
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
            const Result<void> again = run(scenario, device);
            REQUIRE_FALSE(again.has_value());
            REQUIRE(again.error().status == Status::device_lost);
            REQUIRE(device.n_enqueued() == before);
            REQUIRE(device.leaks().empty());
          } else if (!for_ever) {
            ++n_clean;
            REQUIRE(run(scenario, device).has_value());
            REQUIRE(scenario.result == scenario.weights);
          }
        }
      }
    }
    CHECK(n_lost == n_calls * (test::kSlowBuild ? 1 : 6) * 2);
    CHECK(n_clean == n_calls * (test::kSlowBuild ? 2 : 3));
  }
}

TEST_CASE("a GPU that hangs is lost when the wait is over") {
  FakeDevice device;
  device.hang();
  Scenario scenario;
  const Result<void> ran = run(scenario, device);
  REQUIRE_FALSE(ran.has_value());
  CHECK(ran.error().status == Status::device_lost);
  CHECK(device.is_lost());
  CHECK(device.leaks().empty());
}

TEST_CASE("a wait like the last one is seen to end at once, and naps until shortly before") {
  FakeDevice device;
  test::SlackClock clock(device);
  GpuEvent* event = device.create_event().value();
  u64 usual_ns = 0;
  struct Seen {
    u64 late_ns, n_naps;
  };
  const auto wait = [&](u64 takes_ns, u64* usual) {
    device.record(event, device.stream(StreamId::compute));
    const u64 begin_ns = clock.now_ns(), n_naps = clock.n_naps;
    clock.done_ns = begin_ns + takes_ns;
    REQUIRE(wait_done(device, event, clock, 1'000'000'000, usual).has_value());
    return Seen{clock.now_ns() - clock.done_ns, clock.n_naps - n_naps};
  };
  constexpr u64 kToken = 3'000'000, kNap = 90'000;
  CHECK(wait(kToken, &usual_ns).late_ns < 2 * kNap);
  for (u32 i = 0; i < 20; ++i) {
    const Seen seen = wait(kToken + i * 7'000, &usual_ns);
    CHECK(seen.late_ns <= 5'000);
    CHECK(seen.n_naps >= 25);
  }
  // One that takes much longer than the last is napped for again, after 2 ms.
  CHECK(wait(100'000'000, &usual_ns).n_naps > 900);
  CHECK(usual_ns >= 100'000'000);
  CHECK(wait(kToken, &usual_ns).late_ns < 2 * kNap);  // and one that takes less was napped for
  CHECK(wait(kToken, nullptr).n_naps > 25);
  device.destroy_event(event);
}

TEST_CASE("the probe reads so much that neither a cache nor a launch shows in the rate") {
  constexpr f64 kLaunchS = 10e-6;  // until every SM reads, and from the last of them to the event
  struct Board {
    u64 l2_bytes;
    f64 bytes_per_s;
  };
  for (const Board& board : {Board{4 * kMiB, 204.8e9}, Board{2 * kMiB, 102e9}, Board{0, 102e9}}) {
    const u64 n_bytes = probe_bytes({.l2_bytes = board.l2_bytes});
    CHECK(n_bytes >= 4 * board.l2_bytes);
    CHECK(kLaunchS * board.bytes_per_s / static_cast<f64>(n_bytes) < 0.02);
  }
  CHECK(probe_bytes({.l2_bytes = 50 * kMiB}) == 200 * kMiB);
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
}  // namespace tarn::gpu_faults_test
