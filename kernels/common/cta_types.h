// Shared by both implementations of cta.h: vectors as a thread loads them, a launch's shape, and
// the receiver of a list of kernels.
#pragma once

#include "platform/base/gpu_stream.h"
#include "platform/base/types.h"

namespace tarn::kernels {

struct alignas(8) U32x2 {
  u32 w[2];
};
struct alignas(16) U32x4 {
  u32 w[4];
};
struct alignas(8) F32x2 {
  f32 v[2];
};
struct alignas(16) F32x4 {
  f32 v[4];
};

inline constexpr u32 kWarpLanes = 32;

struct LaunchShape {
  u32 n_ctas;
  u32 n_ctas_y = 1;
  u64 shared_bytes = 0;  // all of shared<T>()'s carvings, each rounded up to 16
};

// The most shared bytes that a launch of the kernel asks for.
template <class Kernel>
constexpr u64 shared_bytes_max() {
  if constexpr (requires { Kernel::kSharedBytes; }) return Kernel::kSharedBytes;
  return 0;
}

// Receives kernels one by one, as the pointers that the driver knows (Device::load_kernel).
struct KernelSink {
  void* context;
  void (*add)(void* context, const void* kernel);
};

constexpr u64 shared_bytes_of(u64 n, u64 element_bytes) {
  return (n * element_bytes + 15) / 16 * 16;
}

}  // namespace tarn::kernels
