// Shared by the benches of kernel_bench.h: memory that is released with the object, a pool of
// weights larger than any cache, and the time of calls.
#pragma once

#include <functional>
#include <vector>

#include "tools/gpu_check/kernel_bench.h"

namespace tarn::gpu_check {

class Bench {
 public:
  explicit Bench(const BenchArgs& args);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const kernels::GpuTable& table() const { return *args_.table; }
  const BenchShape& shape() const { return args_.shape; }
  GpuBlas* blas() const { return args_.blas; }
  Device& device() const { return *args_.device; }
  GpuStream* stream() const { return device().stream(StreamId::compute); }

  DeviceBytes reserve(u64 bytes);
  // Reserves bytes that are small finite numbers in every format that kernels read.
  DeviceBytes reserve_random(u64 bytes);
  f32* floats(u64 n) { return reserve_random(n * sizeof(f32)).as<f32>().raw(); }
  kernels::GpuQuantized random_acts(u64 n);
  // Copies, and waits for the end.
  void send(DeviceBytes to, std::span<const std::byte> from);
  template <class T>
  T* upload(const std::vector<T>& values) {
    const DeviceBytes to = reserve(values.size() * sizeof(T));
    send(to, std::as_bytes(std::span(values)));
    return to.as<T>().raw();
  }

  // Reserves random bytes, several times the L2 and at least as large as a matrix.
  void reserve_pool(u64 biggest_matrix);
  DeviceBytes pool() const { return pool_; }
  u64 pool_bytes() const { return pool_bytes_; }
  // The pool's i-th piece of `bytes`, wrapping around.
  const std::byte* piece(u64 bytes, u32 i) const;

  struct Timing {
    u32 n_calls = 0, repetitions = 0;
    bool in_graph = true;
  };
  Timing timing() const { return {shape().calls_per_graph, shape().repetitions, true}; }
  // The ns of one call of enqueue(0), enqueue(1), ... enqueue(n_calls - 1), in the best repetition.
  f64 ns_per_call(const Timing& timing, const std::function<void(u32)>& enqueue);
  // Adds the figure with its time.
  void measure(Figure figure, const std::function<void(u32)>& enqueue) {
    measure(std::move(figure), timing(), enqueue);
  }
  void measure(Figure figure, const Timing& timing, const std::function<void(u32)>& enqueue);
  std::vector<Figure> take_figures() { return std::move(figures_); }

 private:
  void finish();

  const BenchArgs args_;
  GpuEvent *begin_ = nullptr, *end_ = nullptr;
  std::vector<DeviceSlab> slabs_;
  std::vector<Figure> figures_;
  DeviceBytes pool_{};
  u64 pool_bytes_ = 0;
};

u64 matrix_bytes(kernels::TensorType type, u64 n_out, u64 k);

void bench_prompts(Bench& bench);    // prompt_bench.cpp
void bench_selection(Bench& bench);  // select_bench.cpp

}  // namespace tarn::gpu_check
