// tools/gpu_check/bench_device.h
//
// What kernel_bench needs of a device: memory that goes with the object, and how long calls take.
#pragma once

#include <functional>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn::gpu_check {

class BenchDevice {
 public:
  BenchDevice(Device& device, Clock& clock);
  ~BenchDevice();
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;

  Device& device() const { return device_; }
  GpuStream* stream() const { return device_.stream(StreamId::compute); }

  DeviceBytes reserve(u64 bytes);
  // Bytes that are small finite numbers in every format that kernels read.
  DeviceBytes reserve_random(u64 bytes);
  // Copies, and waits for it.
  void send(DeviceBytes to, std::span<const std::byte> from);
  template <class T>
  T* upload(const std::vector<T>& values) {
    const DeviceBytes to = reserve(values.size() * sizeof(T));
    send(to, std::as_bytes(std::span(values)));
    return to.as<T>().raw();
  }

  struct Timing {
    u32 n_calls = 0, repetitions = 0;
    bool in_graph = true;
  };
  // ns of one call of enqueue(0), enqueue(1), ... enqueue(n_calls - 1); the best repetition's.
  f64 ns_per_call(const Timing& timing, const std::function<void(u32)>& enqueue);

 private:
  // An event of the device's, for as long as the object lives.
  class Event {
   public:
    explicit Event(Device& device);
    ~Event() { device_.destroy_event(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    GpuEvent* get() const { return event_; }

   private:
    Device& device_;
    GpuEvent* event_;
  };

  void finish();

  Device& device_;
  Clock& clock_;
  Event begin_, end_;
  std::vector<DeviceSlab> slabs_;
};

}  // namespace tarn::gpu_check
