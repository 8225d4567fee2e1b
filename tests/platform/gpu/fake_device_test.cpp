// Goal    the fake behaves as a GPU does where code could lean on the difference: work is done
//         later, in order on a stream and in no order between streams but for events; a graph runs
//         what was captured on the memory as it is then; a wrong address loses the device for ever.
// Method  copies and the emulated rms_norm over several seeds.
#include "tests/support/fake_device.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

namespace tarn::fake_device_test {
namespace {

using test::FakeDevice;
using test::kDiscreteFacts;
using test::kOrinFacts;

std::span<std::byte> bytes_of(std::vector<f32>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Asks until it is done, as the engine does.
void await(Device& device, GpuEvent* event) {
  bool is_done = false;
  for (u32 i = 0; i < 100 && !is_done; ++i) is_done = device.is_done(event).value();
  REQUIRE(is_done);
}

TEST_CASE("what is enqueued happens later, and streams are ordered by events alone") {
  for (u64 seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    FakeDevice device(kOrinFacts, seed);
    const DeviceSlab slab = device.reserve("test", 4096).value();
    std::vector<f32> out(1024, -1);
    std::vector<f32> in(1024, 7);
    GpuEvent* filled = device.create_event().value();
    GpuEvent* copied = device.create_event().value();
    CHECK(device.is_done(filled).value());  // never recorded
    GpuStream* compute = device.stream(StreamId::compute);
    GpuStream* copies = device.stream(StreamId::copy_out);
    device.wait(copies, filled);  // not recorded yet: waits for nothing, as in CUDA
    device.copy_in(slab.begin, bytes_of(in), compute);
    device.record(filled, compute);
    device.wait(copies, filled);
    device.copy_out(bytes_of(out), slab.begin, copies);
    device.record(copied, copies);
    CHECK(out[0] == -1.0f);
    await(device, copied);
    CHECK(out == in);
    CHECK(device.check().has_value());
    CHECK(device.leaks() == "1 slabs, 2 events");
    device.destroy_event(filled);
    device.destroy_event(copied);
    device.release(slab);
    CHECK(device.leaks().empty());
  }
}

TEST_CASE("a graph runs again what was captured, on the memory as it is then") {
  FakeDevice device(kDiscreteFacts);
  constexpr u32 kD = 64;
  const DeviceSlab slab = device.reserve("test", 4 * kMiB).value();
  const DevicePtr<f32> x = slab.begin.as<f32>(), weight = x + kD, out = weight + kD;
  const DevicePtr<u32> n_rows = (out + kD).as<u32>();
  GpuStream* compute = device.stream(StreamId::compute);
  GpuEvent* done = device.create_event().value();

  std::vector<f32> ones(kD, 1.0f), input(kD), output(kD, 0.0f);
  u32 one = 1;
  device.copy_in(weight.as<std::byte>(), bytes_of(ones), compute);
  device.copy_in(n_rows.as<std::byte>(), std::as_bytes(std::span(&one, 1)), compute);

  REQUIRE(device.begin_capture(compute).has_value());
  kernels::gpu_table_emulated().rms_norm({.x = x.raw(),
                                          .x_stride = kD,
                                          .weight = weight.raw(),
                                          .out = out.raw(),
                                          .out_stride = kD,
                                          .n_rows = n_rows.raw(),
                                          .rows_max = 1,
                                          .n_heads = 1,
                                          .d = kD,
                                          .eps = 0.0f},
                                         compute);
  GpuGraph* graph = device.end_capture(compute).value();
  CHECK(device.graph_use().n_graphs == 1);
  CHECK(device.graph_use().bytes > 0);

  for (const f32 value : {3.0f, -0.25f}) {
    std::fill(input.begin(), input.end(), value);
    device.copy_in(x.as<std::byte>(), bytes_of(input), compute);
    device.launch(graph, compute);
    device.copy_out(bytes_of(output), out.as<std::byte>(), compute);
    device.record(done, compute);
    await(device, done);
    for (const f32 v : output) CHECK(v == doctest::Approx(std::copysign(1.0f, value)));
  }
  CHECK(device.check().has_value());
  device.destroy_graph(graph);
  device.destroy_event(done);
  device.release(slab);
  CHECK(device.leaks().empty());
}

TEST_CASE("memory is counted: slabs, graphs and the driver's part") {
  for (const DeviceFacts& facts : {kOrinFacts, kDiscreteFacts}) {
    CAPTURE(facts.name.data());
    FakeDevice device(facts);
    const u64 free_bytes = device.memory_free_bytes().value();
    CHECK(free_bytes == facts.memory_free_bytes - device.driver_takes_bytes);
    CHECK(device.driver_bytes(0).value() == device.driver_takes_bytes);
    const DeviceSlab slab = device.reserve("test", 10 * kMiB).value();
    CHECK(device.memory_free_bytes().value() == free_bytes - 10 * kMiB);
    CHECK(device.driver_bytes(0).value() == device.driver_takes_bytes);
    device.host_takes_bytes = 5 * kMiB;
    CHECK(device.driver_bytes(5 * kMiB).value() == device.driver_takes_bytes);
    const auto too_much = device.reserve("test", free_bytes - 10 * kMiB + 1);
    REQUIRE_FALSE(too_much.has_value());
    CHECK(too_much.error().status == Status::over_budget);
    device.release(slab);
  }
}

TEST_CASE("an address that the device does not have loses it for ever") {
  FakeDevice device;
  const DeviceSlab slab = device.reserve("test", 4096).value();
  std::vector<f32> values(1025, 0.0f);
  GpuEvent* done = device.create_event().value();
  device.copy_in(slab.begin, bytes_of(values), device.stream(StreamId::copy_in));
  device.record(done, device.stream(StreamId::copy_in));
  CHECK_FALSE(device.is_lost());
  CHECK_FALSE(device.is_done(done).has_value());
  CHECK(device.is_lost());
  for (u32 i = 0; i < 3; ++i) {
    const auto lost = device.check();
    REQUIRE_FALSE(lost.has_value());
    CHECK(lost.error().status == Status::device_lost);
  }
  const u64 before = device.n_enqueued();
  device.fill(slab.begin, 0, 16, device.stream(StreamId::compute));
  CHECK(device.n_enqueued() == before);
  CHECK_FALSE(device.reserve("test", 1).has_value());
}

}  // namespace
}  // namespace tarn::fake_device_test
