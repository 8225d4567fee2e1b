// platform/gpu/cuda/discovery.cpp: finds the GPU, without making a context on it.
#include "platform/gpu/discovery.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>

#include "platform/base/system_text.h"
#include "platform/gpu/cuda/cuda_device.h"

namespace tarn {
namespace {

constexpr u32 kArchs[] = {TARN_CUDA_ARCH_LIST};

Unexpected no_gpu(const char* hint, i32 code) {
  return fail({.status = Status::unsupported,
               .hint = hint,
               .figures = {{{"cuda_error", static_cast<u64>(code)}}}});
}

i32 attribute(cudaDeviceAttr which, i32 gpu_idx) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, gpu_idx) == cudaSuccess ? value : 0;
}

}  // namespace

u64 available_bytes() {
  SystemText text;
  if (!text.read("", "/proc/meminfo")) return 0;
  return text.number_after("MemAvailable:").value_or(0) * kKiB;
}

bool gpu_is_built() { return true; }

Result<DeviceFacts> gpu_discover(u32 gpu_idx) {
  int n_gpus = 0;
  const cudaError_t counted = cudaGetDeviceCount(&n_gpus);
  if (counted != cudaSuccess) (void)cudaGetLastError();  // a later call must not report it
  if (counted == cudaErrorInsufficientDriver) {
    return no_gpu(
        "this machine has no NVIDIA driver, or one older than this build's CUDA: install "
        "it, or choose the device \"cpu\"",
        counted);
  }
  if (counted == cudaErrorNoDevice ||
      (counted == cudaSuccess && gpu_idx >= static_cast<u32>(n_gpus))) {
    return no_gpu(
        "the NVIDIA driver finds no GPU (a container must be given it): choose the device \"cpu\"",
        counted);
  }
  if (counted != cudaSuccess) {
    return no_gpu("the NVIDIA driver does not start: try nvidia-smi, or choose the device \"cpu\"",
                  counted);
  }
  const i32 idx = static_cast<i32>(gpu_idx);
  cudaDeviceProp properties{};
  if (const cudaError_t asked = cudaGetDeviceProperties(&properties, idx); asked != cudaSuccess) {
    (void)cudaGetLastError();
    return no_gpu("the NVIDIA driver does not describe its GPU: choose the device \"cpu\"", asked);
  }
  DeviceFacts facts{.kind = DeviceKind::cuda,
                    .integrated = attribute(cudaDevAttrIntegrated, idx) != 0,
                    .compute_capability =
                        static_cast<u32>(attribute(cudaDevAttrComputeCapabilityMajor, idx) * 10 +
                                         attribute(cudaDevAttrComputeCapabilityMinor, idx)),
                    .n_sms = static_cast<u32>(attribute(cudaDevAttrMultiProcessorCount, idx)),
                    .l2_bytes = static_cast<u64>(attribute(cudaDevAttrL2CacheSize, idx)),
                    .memory_bytes = properties.totalGlobalMem,
                    // cudaMalloc allocates from pages of 2 MiB; a smaller slab shares one.
                    .slab_alignment_bytes = 2 * kMiB};
  // Jetson's allocator fails on large pieces (since L4T 36.4.7) long before the memory ends.
  facts.slab_bytes_max = facts.integrated ? 256 * kMiB : kGiB;
  // A host that runs out of memory this way hangs as a whole, without the OOM killer.
  if (facts.integrated) facts.headroom_bytes = std::max(u64{kGiB}, facts.memory_bytes / 10);
  facts.host_register = attribute(cudaDevAttrHostRegisterSupported, idx) != 0 &&
                        attribute(cudaDevAttrCanMapHostMemory, idx) != 0;
  if (facts.integrated) facts.memory_free_bytes = available_bytes();
  std::copy_n(properties.name, std::min(std::strlen(properties.name), facts.name.size() - 1),
              facts.name.begin());
  if (!has_kernels_for(facts.compute_capability, kArchs, TARN_CUDA_PTX_ARCH)) {
    return fail({.status = Status::unsupported,
                 .hint =
                     "this build has no kernels for this GPU: build with TARN_CUDA_ARCHS set to "
                     "its compute capability, or choose the device \"cpu\"",
                 .detail = Detail(facts.name.data()),
                 .figures = {{{"compute_capability", facts.compute_capability}}}});
  }
  return facts;
}

Result<Device*> system_device_open(SystemDeviceMemory& memory, const DeviceOpenArgs& args) {
  TARN_TRY(const DeviceFacts facts, gpu_discover(args.gpu_idx));
  auto* device = new (&memory) CudaDevice();
  TARN_CHECK(device->open(facts, args));
  return device;
}

void system_device_close(Device* device) {
  if (device != nullptr) static_cast<CudaDevice*>(device)->close();
}

}  // namespace tarn
