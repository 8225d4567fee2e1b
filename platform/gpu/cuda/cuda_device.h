// The Device of CUDA's runtime (12.2 to 13.x, linked statically). Events and graphs are the
// runtime's own handles; this class allocates nothing.
#pragma once

#include <cuda_runtime.h>

#include "platform/gpu/device.h"
#include "platform/gpu/gpu_errors.h"

namespace tarn {

class CudaDevice final : public Device {
 public:
  // `facts` come from gpu_discover(). On failure everything is closed again.
  Result<void> open(const DeviceFacts& facts, const DeviceOpenArgs& args);
  void close();

  const DeviceFacts& facts() const override { return facts_; }
  Result<void> bind_thread() override;
  Result<u64> memory_free_bytes() override;
  Result<u64> driver_bytes(u64 host_bytes) override;

  Result<DeviceSlab> reserve(const char* name, u64 bytes) override;
  void release(const DeviceSlab& slab) override;
  Result<DeviceBytes> register_host(std::span<std::byte> bytes) override;
  void unregister_host(std::span<std::byte> bytes) override;
  Result<DeviceBytes> pinned_address(std::span<std::byte> bytes) override;
  Result<std::span<std::byte>> reserve_pinned(const char* name, u64 bytes) override;
  void release_pinned(std::span<std::byte> bytes) override;
  Result<void> load_kernel(const void* kernel) override;

  GpuStream* stream(StreamId id) override;
  void copy_in(DeviceBytes to, std::span<const std::byte> from, GpuStream* on) override;
  void copy_out(std::span<std::byte> to, DeviceBytes from, GpuStream* on) override;
  void copy(DeviceBytes to, DeviceBytes from, u64 bytes, GpuStream* on) override;
  void fill(DeviceBytes to, u8 value, u64 bytes, GpuStream* on) override;
  void read(DeviceBytes from, u64 bytes, GpuStream* on) override;

  Result<GpuEvent*> create_event() override;
  void destroy_event(GpuEvent* event) override;
  void record(GpuEvent* event, GpuStream* on) override;
  void wait(GpuStream* waits, GpuEvent* event) override;
  Result<bool> is_done(GpuEvent* event) override;
  Result<u64> elapsed_ns(GpuEvent* from, GpuEvent* to) override;

  Result<void> begin_capture(GpuStream* on) override;
  Result<GpuGraph*> end_capture(GpuStream* on) override;
  void launch(GpuGraph* graph, GpuStream* on) override;
  void destroy_graph(GpuGraph* graph) override;
  GraphUse graph_use() const override { return graphs_; }

  Result<void> check() override;
  bool is_lost() const override { return errors_.is_lost(); }
  void give_up() override { errors_.note(kGpuLaunchTimeout, "it does not answer"); }

 private:
  // For a call that reports its failure at once.
  Result<void> answer(cudaError_t code, const char* what);
  // For enqueued work: keeps the error for check().
  void enqueued(cudaError_t code, const char* what) { errors_.note(code, what); }
  // A launch returns nothing: a refused launch sets the runtime's last error. A later call that
  // does not return success replaces it (a query of running work is one). So it is read before such
  // calls.
  void collect_launches() { enqueued(cudaGetLastError(), "a kernel's launch"); }
  // Makes a call that releases something, unless the device is lost: a dead context has nothing
  // left to release. With a GPU that hangs, cudaFree() and cudaStreamSynchronize() would wait for
  // ever.
  template <class Call>
  void give_back(Call&& call) {
    if (is_lost()) return;
    collect_launches();
    enqueued(call(), "what gives back");
    (void)cudaGetLastError();  // it is noted
  }
  void copy_any(void* to, const void* from, u64 bytes, cudaMemcpyKind kind, GpuStream* on,
                const char* what);

  DeviceFacts facts_{};
  GpuErrorLatch errors_{};
  i32 gpu_idx_ = 0;
  cudaStream_t streams_[kStreams] = {};
  u64 free_at_open_bytes_ = 0;
  u64 reserved_bytes_ = 0;  // slabs and pinned memory, as far as memory_free_bytes() counts them
  u32 n_slabs_ = 0;
  u32 n_events_ = 0;
  GraphUse graphs_{};
};

static_assert(sizeof(CudaDevice) <= kSystemDeviceBytes);

// The system's MemAvailable, which an integrated GPU can get; 0 where it is not known.
u64 available_bytes();

// Reads `bytes` (a multiple of 16) from an aligned address and drops them, on every SM.
void launch_read_probe(const void* from, u64 bytes, u32 n_sms, cudaStream_t on);

}  // namespace tarn
