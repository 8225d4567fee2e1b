#include "tools/gpu_check/bench.h"

#include <algorithm>
#include <memory>

#include "kernels/quant/gpu_tile.h"
#include "platform/base/checked.h"
#include "platform/gpu/device_wait.h"
#include "tools/support/exit_code.h"

namespace tarn::gpu_check {
namespace {

using tools::value_of;

constexpr u64 kWaitNsMax = 20'000'000'000;
constexpr u64 kUploadBytes = 4 * kMiB;
constexpr u32 kPoolL2s = 4;  // the pool's size in L2 caches
constexpr u64 kAlignment = 4 * kKiB;
// Bits of a byte that cannot make an f16 or f32 infinite or NaN.
constexpr u32 kFiniteBits = 0x37;

}  // namespace

u64 matrix_bytes(kernels::TensorType type, u64 n_out, u64 k) {
  return n_out / kernels::kTileRows * kernels::gpu_tile_bytes(type, k);
}

Bench::Bench(const BenchArgs& args) : args_(args) {
  begin_ = value_of(device().create_event());
  const Result<GpuEvent*> end = device().create_event();
  if (!end) device().destroy_event(begin_);
  end_ = value_of(end);
}

Bench::~Bench() {
  for (const DeviceSlab& slab : slabs_) device().release(slab);
  device().destroy_event(begin_);
  device().destroy_event(end_);
}

void Bench::finish() {
  device().record(end_, stream());
  value_of(wait_done(device(), end_, *args_.clock, kWaitNsMax));
  value_of(device().check());
}

DeviceBytes Bench::reserve(u64 bytes) {
  slabs_.push_back(value_of(device().reserve("bench", bytes)));
  return slabs_.back().begin;
}

DeviceBytes Bench::reserve_random(u64 bytes) {
  const DeviceBytes to = reserve(bytes);
  std::vector<std::byte> piece(std::min(bytes, kUploadBytes));
  u64 state = 1;
  for (std::byte& byte : piece) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 40 & kFiniteBits);
  }
  for (u64 at = 0; at < bytes; at += piece.size()) {
    const u64 n = std::min<u64>(piece.size(), bytes - at);
    device().copy_in(to + at, std::span(piece).first(n), stream());
  }
  finish();
  return to;
}

kernels::GpuQuantized Bench::random_acts(u64 n) {
  return {.q = reserve_random(n).as<i8>().raw(),
          .side = reserve_random(n / 32 * sizeof(kernels::U32x2)).as<kernels::U32x2>().raw()};
}

void Bench::send(DeviceBytes to, std::span<const std::byte> from) {
  device().copy_in(to, from, stream());
  finish();
}

void Bench::reserve_pool(u64 biggest_matrix) {
  pool_bytes_ =
      align_up(std::max({shape().pool_bytes_min, kPoolL2s * device().facts().l2_bytes,
                         align_up(biggest_matrix, kAlignment), 2 * shape().weight_bytes_min}),
               2 * kAlignment);
  pool_ = reserve_random(pool_bytes_);
}

const std::byte* Bench::piece(u64 bytes, u32 i) const {
  const u64 stride = std::max(kAlignment, align_up(bytes, kAlignment));
  return pool_.raw() + i % std::max<u64>(1, pool_bytes_ / stride) * stride;
}

void Bench::measure(Figure figure, const Timing& timing, const std::function<void(u32)>& enqueue) {
  figure.ns = ns_per_call(timing, enqueue);
  figures_.push_back(std::move(figure));
}

f64 Bench::ns_per_call(const Timing& timing, const std::function<void(u32)>& enqueue) {
  const auto enqueue_all = [&] {
    for (u32 i = 0; i < timing.n_calls; ++i) enqueue(i);
  };
  struct DestroyGraph {
    Device* device;
    void operator()(GpuGraph* graph) const { device->destroy_graph(graph); }
  };
  std::unique_ptr<GpuGraph, DestroyGraph> graph(nullptr, {&device()});
  if (timing.in_graph) {
    value_of(device().begin_capture(stream()));
    enqueue_all();
    graph.reset(value_of(device().end_capture(stream())));
  }
  f64 best_ns = 1e30;
  for (u32 i = 0; i <= timing.repetitions; ++i) {
    device().record(begin_, stream());
    if (graph != nullptr) {
      device().launch(graph.get(), stream());
    } else {
      enqueue_all();
    }
    finish();
    const f64 ns = static_cast<f64>(value_of(device().elapsed_ns(begin_, end_)));
    if (i > 0) best_ns = std::min(best_ns, ns);  // the first repetition warms caches and clocks
  }
  return best_ns / timing.n_calls;
}

}  // namespace tarn::gpu_check
