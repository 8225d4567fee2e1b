#include "tools/gpu_check/bench_device.h"

#include <algorithm>
#include <memory>

#include "platform/gpu/device_wait.h"
#include "tools/support/exit_code.h"

namespace tarn::gpu_check {
namespace {

using tools::value_of;

constexpr u64 kWaitNsMax = 20'000'000'000;
constexpr u64 kUploadBytes = 4 * kMiB;
// Of a byte, so that no f16 or f32 put together of such is infinite or NaN.
constexpr u32 kFiniteBits = 0x37;

}  // namespace

BenchDevice::Event::Event(Device& device)
    : device_(device), event_(value_of(device.create_event())) {}

BenchDevice::BenchDevice(Device& device, Clock& clock)
    : device_(device), clock_(clock), begin_(device), end_(device) {}

BenchDevice::~BenchDevice() {
  for (const DeviceSlab& slab : slabs_) device_.release(slab);
}

void BenchDevice::finish() {
  device_.record(end_.get(), stream());
  value_of(wait_done(device_, end_.get(), clock_, kWaitNsMax));
  value_of(device_.check());
}

DeviceBytes BenchDevice::reserve(u64 bytes) {
  slabs_.push_back(value_of(device_.reserve("bench", bytes)));
  return slabs_.back().begin;
}

DeviceBytes BenchDevice::reserve_random(u64 bytes) {
  const DeviceBytes to = reserve(bytes);
  std::vector<std::byte> piece(std::min(bytes, kUploadBytes));
  u64 state = 1;
  for (std::byte& byte : piece) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 40 & kFiniteBits);
  }
  for (u64 at = 0; at < bytes; at += piece.size()) {
    const u64 n = std::min<u64>(piece.size(), bytes - at);
    device_.copy_in(to + at, std::span(piece).first(n), stream());
  }
  finish();
  return to;
}

void BenchDevice::send(DeviceBytes to, std::span<const std::byte> from) {
  device_.copy_in(to, from, stream());
  finish();
}

f64 BenchDevice::ns_per_call(const Timing& timing, const std::function<void(u32)>& enqueue) {
  const auto enqueue_all = [&] {
    for (u32 i = 0; i < timing.n_calls; ++i) enqueue(i);
  };
  struct DestroyGraph {
    Device* device;
    void operator()(GpuGraph* graph) const { device->destroy_graph(graph); }
  };
  std::unique_ptr<GpuGraph, DestroyGraph> graph(nullptr, {&device_});
  if (timing.in_graph) {
    value_of(device_.begin_capture(stream()));
    enqueue_all();
    graph.reset(value_of(device_.end_capture(stream())));
  }
  f64 best_ns = 1e30;
  for (u32 i = 0; i <= timing.repetitions; ++i) {
    device_.record(begin_.get(), stream());
    if (graph != nullptr) {
      device_.launch(graph.get(), stream());
    } else {
      enqueue_all();
    }
    finish();
    const f64 ns = static_cast<f64>(value_of(device_.elapsed_ns(begin_.get(), end_.get())));
    if (i > 0) best_ns = std::min(best_ns, ns);  // the first one warms caches and clocks
  }
  return best_ns / timing.n_calls;
}

}  // namespace tarn::gpu_check
