// platform/gpu/cuda/read_probe.cu: reads memory as a matrix-vector kernel reads weights, 16 bytes a
// thread, one after the other over all SMs, and keeps nothing. What the box's two kinds of memory
// give is measured with it (memory_probe.h).
#include "platform/gpu/cuda/cuda_device.h"

namespace tarn {
namespace {

constexpr u32 kThreads = 256;
constexpr u32 kCtasASm = 8;

__device__ u32 g_sink;  // written once in 2^32 words, so that the reads cannot be left out

__global__ void read_probe(const uint4* from, u64 n) {
  u32 sum = 0;
  const u64 stride = u64{gridDim.x} * kThreads;
  for (u64 i = u64{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    const uint4 v = from[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9e3779b9) g_sink = sum;
}

}  // namespace

void launch_read_probe(const void* from, u64 bytes, u32 n_sms, cudaStream_t on) {
  read_probe<<<n_sms * kCtasASm, kThreads, 0, on>>>(static_cast<const uint4*>(from), bytes / 16);
}

}  // namespace tarn
