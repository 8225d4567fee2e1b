// Large dense products by the GPU vendor's library (cuBLAS). It is opened at run time, never
// linked, and may be absent: then open() says so, and our own kernels compute.
//
//   memory   the workspace is lent, so that results do not depend on free memory; memory that the
//            library takes beside it counts to the driver's region
//   thread   the device's
//   errors   open() answers Status::unsupported where no library works; products answer nothing,
//            check() answers their first error
#pragma once

#include "platform/gpu/device.h"

namespace tarn {

struct GpuBlasOpenArgs {
  Device* device = nullptr;            // borrowed until close()
  DeviceBytes workspace{};             // 256-byte aligned
  u64 workspace_bytes = 0;             // cuBLAS asks for 4 MiB, 32 MiB on sm_90 and later
  const char* library_path = nullptr;  // nullptr: where the system's loader finds it
};

// out[m, n] = x[m, k] * w[n, k]^T: rows times rows, accumulated in f32. Sizes are in elements, rows
// have no gaps, k is a multiple of 8.
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
  // Answers the first error of a product, once.
  Result<void> check();

 private:
  struct Library {  // never filled in a build without a GPU
    void* library = nullptr;
    void* handle = nullptr;
    void* functions[5] = {};
    Device* device = nullptr;
    GpuStream* stream = nullptr;  // the stream that has the workspace
    DeviceBytes workspace{};
    u64 workspace_bytes = 0;
    i32 error = 0;
  } cublas_;
  i32 bind(GpuStream* stream);
};

}  // namespace tarn
