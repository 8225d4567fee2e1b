// The GPUs that a test of GPU kernels runs on: the emulator always, and the machine's own where
// there is one and this build has CUDA. Each case walks gpus(), so the
// same oracles hold for all of them.
#pragma once

#include <new>
#include <span>
#include <vector>

#include "kernels/gpu_table.h"
#include "tests/support/emulator/emulator.h"

namespace tarn {
class Device;
}

namespace tarn::kernels::test {

struct Gpu {
  const GpuTable* table;
  GpuStream* stream;
  void* (*allocate)(u64 n_bytes);  // aligned to 256
  void (*release)(void* bytes);
  void (*upload)(void* device, const void* host, u64 n_bytes);
  void (*download)(void* host, const void* device, u64 n_bytes);  // after all that was launched
  Device* device;                                                 // nullptr: emulated
};

std::span<const Gpu> gpus();

// Memory of the device, exactly as long as what it was made from, so that AddressSanitizer sees a
// kernel that reads or writes past it.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const Gpu& gpu, const std::vector<T>& values)
      : gpu_(gpu),
        n_(values.size()),
        data_(static_cast<T*>(gpu.allocate(values.size() * sizeof(T)))) {
    if (n_ != 0) gpu.upload(data_, values.data(), n_ * sizeof(T));
  }
  DeviceArray(const Gpu& gpu, u64 n, T fill) : DeviceArray(gpu, std::vector<T>(n, fill)) {}
  ~DeviceArray() { gpu_.release(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(n_);
    if (n_ != 0) gpu_.download(values.data(), data_, n_ * sizeof(T));
    return values;
  }

 private:
  const Gpu& gpu_;
  u64 n_;
  T* data_;
};

}  // namespace tarn::kernels::test
