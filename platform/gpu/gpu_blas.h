// platform/gpu/gpu_blas.h
//
// Large dense products by the GPU vendor's library (cuBLAS), which is opened at run time and may be
// absent: then open() says so, and our own kernels compute. Nothing of it is linked.
//
//   memory   the workspace is lent, so that results do not hang on what is free; what the library
//            takes beside it is the driver's region
//   thread   the device's
//   errors   open() answers Status::unsupported where there is no library, or none that works;
//            products answer nothing, check() tells the first error of theirs
#pragma once

#include "platform/gpu/device.h"

namespace tarn {

struct GpuBlasOpenArgs {
  Device* device = nullptr;            // borrowed until close()
  DeviceBytes workspace{};             // 256-byte aligned
  u64 workspace_bytes = 0;             // cuBLAS asks for 4 MiB, 32 MiB on sm_90 and later
  const char* library_path = nullptr;  // nullptr: where the system's loader finds it
};

// out[m, n] = x[m, k] * w[n, k]^T: rows times rows, accumulated in f32. Sizes are in elements, all
// rows without gaps; k a multiple of 8.
struct GpuBlasArgs {
  const void* x = nullptr;  // [m, k] f16
  const void* w = nullptr;  // [n, k] f16
  f32* out = nullptr;       // [m, n]
  u32 m = 0, n = 0, k = 0;
};

class GpuBlas {
 public:
  GpuBlas() = default;
  GpuBlas(const GpuBlas&) = delete;
  GpuBlas& operator=(const GpuBlas&) = delete;
  ~GpuBlas() { close(); }

  Result<void> open(const GpuBlasOpenArgs& args);
  void close();
  bool is_open() const { return cublas_.handle != nullptr; }
  void product(const GpuBlasArgs& args, GpuStream* on);
  // The first error of a product, or nothing; told once.
  Result<void> check();

 private:
  struct Library {  // the build without a GPU never fills it
    void* library = nullptr;
    void* handle = nullptr;
    void* functions[5] = {};
    Device* device = nullptr;
    GpuStream* stream = nullptr;  // for which the workspace was set
    DeviceBytes workspace{};
    u64 workspace_bytes = 0;
    i32 error = 0;
  } cublas_;
  i32 bind(GpuStream* stream);
};

}  // namespace tarn
