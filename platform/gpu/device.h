// The runtime's view of a GPU: memory, queues, events, copies, graphs and the first error.
// platform/gpu/cuda and platform/gpu/none implement it, and CMake links one of them. Tests have a
// third one that computes on the host and fails on demand.
//
//   thread    the engine's; a device is used by one thread at a time
//   memory    reserve() answers one contiguous slab. Jetson's allocator gives no piece of several
//             GiB, so a large region is several slabs. It is cut between pieces that have to be
//             contiguous: a tensor, a KV group, a step buffer (slabs.h). Nothing is reserved after
//             READY.
//   kinds     device memory is cached by the GPU and not readable by the CPU. Shared memory is the
//             host's, registered: both sides and the disk's DMA reach it, perhaps uncached by the
//             GPU (memory_probe.h measures that). A discrete GPU reads shared memory over its bus.
//   queues    enqueueing answers nothing. The first error is kept, and check() answers it; the
//             engine calls check() at the end of every step.
//   errors    device_lost is for ever: every later call that can fail answers device_lost, and
//             enqueueing does nothing. over_budget: not enough memory. internal: our own bug.
//
// Nothing here is global: several devices live in one process, and cudaDeviceReset is never called.
#pragma once

#include <array>
#include <span>

#include "platform/base/gpu_stream.h"
#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

enum class DeviceKind : u8 { cpu, cuda };

struct DeviceFacts {
  DeviceKind kind = DeviceKind::cpu;
  std::array<char, 64> name{};
  bool integrated = false;     // shares its memory with the CPU, as the driver says
  bool host_register = false;  // host memory can be made shared memory
  u32 compute_capability = 0;  // 87 is sm_87
  u32 n_sms = 0;
  u64 l2_bytes = 0;
  u64 memory_bytes = 0;          // device memory in all; 0 for the CPU
  u64 memory_free_bytes = 0;     // at discovery; 0: not known before open() (a discrete GPU)
  u64 headroom_bytes = 0;        // what reserve() leaves to the system; 0 for a discrete GPU
  u64 slab_bytes_max = 0;        // limit of one reserve(); a larger piece gets a slab of its own
  u64 slab_alignment_bytes = 0;  // the driver rounds slabs up to it, and so does the plan
};

// The answer of device_choose(). "cpu" always works; "cuda" fails with the reason where this build
// or this machine has no GPU. "auto" takes the GPU if there is one; otherwise `why_cpu` has the
// reason. The call makes no context and takes no memory.
struct DeviceChoice {
  DeviceFacts facts{};
  const char* why_cpu = nullptr;
  bool built = false;  // this build has a GPU backend, so a missing GPU is worth a warning
};
Result<DeviceChoice> device_choose(const char* wanted, u32 gpu_idx = 0);

// An address on the device. It is a distinct type, so that host code cannot read through it; raw()
// is only for the arguments of kernels.
template <class T>
class DevicePtr {
 public:
  constexpr DevicePtr() = default;
  explicit constexpr DevicePtr(T* raw) : raw_(raw) {}
  T* raw() const { return raw_; }
  template <class U>
  DevicePtr<U> as() const {
    return DevicePtr<U>(reinterpret_cast<U*>(raw_));
  }
  DevicePtr operator+(u64 n) const { return DevicePtr(raw_ + n); }
  explicit operator bool() const { return raw_ != nullptr; }
  friend bool operator==(DevicePtr, DevicePtr) = default;

 private:
  T* raw_ = nullptr;
};
using DeviceBytes = DevicePtr<std::byte>;

struct DeviceSlab {
  DeviceBytes begin{};
  u64 bytes = 0;
};

enum class StreamId : u8 { compute, copy_in, copy_out };
inline constexpr u32 kStreams = 3;
inline constexpr u32 kDeviceEventsMax = 64;
inline constexpr u32 kDeviceGraphsMax = 256;
inline constexpr u32 kDeviceSlabsMax = 512;
// The number of launches in a stream's queue before an enqueueing call blocks. CUDA documents no
// number; its drivers have 1,024. stream_progress.h stays below it.
inline constexpr u32 kStreamLaunchesMax = 1024;

struct GpuEvent;
struct GpuGraph;

struct GraphUse {
  u32 n_graphs = 0;
  u64 bytes = 0;  // of device memory, measured at creation; 0 where the driver shows none
};

class Device {
 public:
  virtual const DeviceFacts& facts() const = 0;
  // Call once on a thread that uses a device which another thread opened.
  virtual Result<void> bind_thread() = 0;
  // Free device memory now. On an integrated GPU this is the system's MemAvailable, because the
  // driver's figure counts the page cache as used.
  virtual Result<u64> memory_free_bytes() = 0;
  // Memory that the driver took since open() beside our slabs: modules, local memory, graphs,
  // libraries' workspaces; on an integrated GPU the context too. It is measured as the loss of free
  // memory, so it includes what other processes took meanwhile. Warm everything, then ask once,
  // before READY. On an integrated GPU every process shares that memory, so the figure is no reason
  // to refuse. `host_bytes` is the host memory that this process reserved since open(); it counts
  // on an integrated GPU.
  virtual Result<u64> driver_bytes(u64 host_bytes) = 0;

  // Reserves one contiguous slab of device memory, not zeroed. `name` is static; the error shows
  // it.
  virtual Result<DeviceSlab> reserve(const char* name, u64 bytes) = 0;
  virtual void release(const DeviceSlab& slab) = 0;  // exactly what reserve() gave
  // Makes host memory shared memory. It must be anonymous, sector-aligned and without huge pages
  // (ReserveArgs::for_device). Status::unsupported where facts().host_register is false: use pinned
  // memory then.
  virtual Result<DeviceBytes> register_host(std::span<std::byte> bytes) = 0;
  virtual void unregister_host(std::span<std::byte> bytes) = 0;  // exactly what was registered
  // Allocates host memory of the driver's own, sector-aligned. It is shared memory where none can
  // be registered. pinned_address() is the GPU's address of a part of it.
  virtual Result<std::span<std::byte>> reserve_pinned(const char* name, u64 bytes) = 0;
  virtual void release_pinned(std::span<std::byte> bytes) = 0;
  virtual Result<DeviceBytes> pinned_address(std::span<std::byte> bytes) = 0;

  // Loads a kernel's code (GpuTable::each_kernel) into the GPU's memory; otherwise the driver loads
  // it at the first launch. Not while capturing.
  virtual Result<void> load_kernel(const void* kernel) = 0;

  // Work runs in order on one stream, in any order between streams. Copies from host memory that is
  // neither registered nor pinned work too, more slowly, and may finish before the call returns.
  virtual GpuStream* stream(StreamId id) = 0;
  virtual void copy_in(DeviceBytes to, std::span<const std::byte> from, GpuStream* on) = 0;
  virtual void copy_out(std::span<std::byte> to, DeviceBytes from, GpuStream* on) = 0;
  virtual void copy(DeviceBytes to, DeviceBytes from, u64 bytes, GpuStream* on) = 0;
  virtual void fill(DeviceBytes to, u8 value, u64 bytes, GpuStream* on) = 0;
  virtual void read(DeviceBytes from, u64 bytes, GpuStream* on) = 0;  // and drop: for the probe

  // Makes an event; at most kDeviceEventsMax. An event that was never recorded is done.
  virtual Result<GpuEvent*> create_event() = 0;
  virtual void destroy_event(GpuEvent* event) = 0;
  virtual void record(GpuEvent* event, GpuStream* on) = 0;
  virtual void wait(GpuStream* waits, GpuEvent* event) = 0;
  virtual Result<bool> is_done(GpuEvent* event) = 0;  // never blocks: device_wait.h has the limit
  virtual Result<u64> elapsed_ns(GpuEvent* from, GpuEvent* to) = 0;  // both done

  // Until end_capture() work enqueued on `on` is recorded and does not run. At most
  // kDeviceGraphsMax.
  virtual Result<void> begin_capture(GpuStream* on) = 0;
  virtual Result<GpuGraph*> end_capture(GpuStream* on) = 0;
  virtual void launch(GpuGraph* graph, GpuStream* on) = 0;
  virtual void destroy_graph(GpuGraph* graph) = 0;
  virtual GraphUse graph_use() const = 0;

  // Answers the first error of enqueued work. device_lost stays; other errors are answered once.
  // Not while capturing.
  virtual Result<void> check() = 0;
  virtual bool is_lost() const = 0;
  // Declares the device lost: it hung, or gave impossible answers.
  virtual void give_up() = 0;

 protected:
  ~Device() = default;
};

struct DeviceOpenArgs {
  u32 gpu_idx = 0;
  // Priority of the compute stream, for a GPU that a camera pipeline shares: 0 is the driver's
  // normal, lower runs sooner. Copies always go first, because they are short.
  i32 compute_priority = 0;
};

// Storage of a system's device; the engine lends it, so that the core needs no allocation.
inline constexpr u64 kSystemDeviceBytes = 16 * kKiB;
struct alignas(64) SystemDeviceMemory {
  std::byte bytes[kSystemDeviceBytes];
};

// Makes the context and the streams; on failure nothing is kept. `memory` is lent until close.
// Close releases all that the device itself holds; slabs belong to their owners.
Result<Device*> system_device_open(SystemDeviceMemory& memory, const DeviceOpenArgs& args);
void system_device_close(Device* device);

}  // namespace tarn
