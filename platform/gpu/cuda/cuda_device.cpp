// platform/gpu/cuda/cuda_device.cpp: the context, memory and errors of a CudaDevice.
#include "platform/gpu/cuda/cuda_device.h"

#include "platform/base/assert.h"
#include "platform/gpu/slabs.h"

namespace tarn {

Result<void> CudaDevice::answer(cudaError_t code, const char* what) {
  if (is_lost()) return errors_.take();
  if (code == cudaSuccess) return {};
  (void)cudaGetLastError();  // reported here, so clear it
  if (gpu_error_class(code) == GpuErrorClass::lost) errors_.note(code, what);
  return fail(gpu_error(code, what));
}

Result<void> CudaDevice::open(const DeviceFacts& facts, const DeviceOpenArgs& args) {
  facts_ = facts;
  gpu_idx_ = static_cast<i32>(args.gpu_idx);
  free_at_open_bytes_ = facts.memory_free_bytes;  // an integrated GPU's: before the context
  (void)cudaGetLastError();  // an earlier error of this thread is not ours to report
  Result<void> made = answer(cudaSetDevice(gpu_idx_), "cudaSetDevice");
  int least = 0, greatest = 0;
  if (made) {
    made = answer(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
  }
  for (u32 i = 0; made && i < kStreams; ++i) {
    const bool computes = i == static_cast<u32>(StreamId::compute);
    const int wanted = computes ? args.compute_priority : greatest;
    const int priority = wanted > least ? least : wanted < greatest ? greatest : wanted;
    made = answer(cudaStreamCreateWithPriority(&streams_[i], cudaStreamNonBlocking, priority),
                  "cudaStreamCreate");
  }
  if (made && !facts_.integrated) {
    const Result<u64> free_bytes = memory_free_bytes();
    if (free_bytes) free_at_open_bytes_ = facts_.memory_free_bytes = *free_bytes;
    if (!free_bytes) made = fail(free_bytes.error());
  }
  if (!made) close();
  return made;
}

void CudaDevice::close() {
  for (cudaStream_t& stream : streams_) {
    if (stream == nullptr) continue;
    give_back([&] { return cudaStreamSynchronize(stream); });
    give_back([&] { return cudaStreamDestroy(stream); });
    stream = nullptr;
  }
}

Result<void> CudaDevice::bind_thread() { return answer(cudaSetDevice(gpu_idx_), "cudaSetDevice"); }

Result<u64> CudaDevice::memory_free_bytes() {
  if (is_lost()) return fail(errors_.take().error());
  if (facts_.integrated) return available_bytes();
  size_t free_bytes = 0, total_bytes = 0;
  TARN_CHECK(answer(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo"));
  return u64{free_bytes};
}

Result<u64> CudaDevice::driver_bytes(u64 host_bytes) {
  TARN_TRY(const u64 free_bytes, memory_free_bytes());
  const u64 ours = free_bytes + reserved_bytes_ + (facts_.integrated ? host_bytes : 0);
  return free_at_open_bytes_ > ours ? free_at_open_bytes_ - ours : 0;
}

Result<DeviceSlab> CudaDevice::reserve(const char* name, u64 bytes) {
  TARN_ASSERT(bytes > 0);
  TARN_ASSERT(n_slabs_ < kDeviceSlabsMax);
  // Where GPU and system share memory, a driver that hands out the last of it takes the machine
  // down. So the free memory is checked before the call, and again after it.
  TARN_TRY(const u64 free_bytes, memory_free_bytes());
  TARN_CHECK(check_headroom(facts_, name, bytes, free_bytes));
  void* memory = nullptr;
  TARN_CHECK(answer(cudaMalloc(&memory, bytes), name));
  ++n_slabs_;
  reserved_bytes_ += bytes;
  const DeviceSlab slab{DeviceBytes(static_cast<std::byte*>(memory)), bytes};
  if (facts_.headroom_bytes == 0) return slab;
  const Result<u64> left_bytes = memory_free_bytes();
  Result<void> leaves = left_bytes ? check_headroom(facts_, name, 0, *left_bytes)
                                   : Result<void>(fail(left_bytes.error()));
  if (leaves) return slab;
  release(slab);
  return fail(leaves.error());
}

void CudaDevice::release(const DeviceSlab& slab) {
  TARN_ASSERT(n_slabs_ > 0);
  give_back([&] { return cudaFree(slab.begin.raw()); });
  --n_slabs_;
  reserved_bytes_ -= slab.bytes;
}

Result<DeviceBytes> CudaDevice::register_host(std::span<std::byte> bytes) {
  if (!facts_.host_register) {
    return fail({.status = Status::unsupported,
                 .hint = "this GPU's driver registers no host memory; copies go through its own"});
  }
  TARN_CHECK(answer(cudaHostRegister(bytes.data(), bytes.size(), cudaHostRegisterMapped),
                    "cudaHostRegister"));
  const Result<DeviceBytes> address = pinned_address(bytes);
  if (!address) unregister_host(bytes);
  return address;
}

Result<DeviceBytes> CudaDevice::pinned_address(std::span<std::byte> bytes) {
  void* address = nullptr;
  TARN_CHECK(
      answer(cudaHostGetDevicePointer(&address, bytes.data(), 0), "cudaHostGetDevicePointer"));
  return DeviceBytes(static_cast<std::byte*>(address));
}

void CudaDevice::unregister_host(std::span<std::byte> bytes) {
  give_back([&] { return cudaHostUnregister(bytes.data()); });
}

Result<std::span<std::byte>> CudaDevice::reserve_pinned(const char* name, u64 bytes) {
  void* memory = nullptr;
  TARN_CHECK(answer(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), name));
  if (facts_.integrated) reserved_bytes_ += bytes;
  return std::span<std::byte>(static_cast<std::byte*>(memory), bytes);
}

void CudaDevice::release_pinned(std::span<std::byte> bytes) {
  give_back([&] { return cudaFreeHost(bytes.data()); });
  if (facts_.integrated) reserved_bytes_ -= bytes.size();
}

Result<void> CudaDevice::load_kernel(const void* kernel) {
  cudaFuncAttributes asked{};  // this loads it (CUDA C++ Programming Guide, "Lazy Loading")
  return answer(cudaFuncGetAttributes(&asked, kernel), "a kernel's code");
}

Result<void> CudaDevice::check() {
  collect_launches();
  // A dead context answers every call with its error; this call does not wait.
  const cudaError_t state = cudaStreamQuery(streams_[static_cast<u32>(StreamId::compute)]);
  if (state != cudaSuccess) (void)cudaGetLastError();
  enqueued(state, "the compute stream");
  return errors_.take();
}

}  // namespace tarn
