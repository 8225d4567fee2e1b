// platform/gpu/device.h
//
// What a GPU is to the runtime: memory, queues, events, copies, graphs and its first error.
// platform/gpu/cuda and platform/gpu/none implement it, CMake links one of them (absence is a
// folder); tests have one that computes on the host and fails on demand.
//
//   thread    the engine's; a device is used by one thread at a time
//   memory    reserve() answers one slab, which is contiguous. Jetson's allocator gives no piece of
//             several GiB, so a large region is several slabs, cut between pieces that have to be
//             contiguous each: a tensor, a KV group, a step buffer (slabs.h). Everything is
//             reserved before READY; nothing is asked for afterwards.
//   kinds     device memory is cached by the GPU and not readable by the CPU. Shared memory is the
//             host's, registered: both sides and the disk's DMA reach it, perhaps uncached by the
//             GPU (memory_probe.h measures that). A discrete GPU reads shared memory over its bus.
//   queues    what is enqueued answers nothing. The first error is kept, and check(), which the
//             engine calls at the end of every step, answers it.
//   errors    device_lost is for ever: after it every call that can fail answers device_lost, and
//             enqueueing does nothing. over_budget: the memory is not there. internal: our own bug.
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
  bool integrated = false;     // shares its memory with the CPU: the driver's word, never a guess
  bool host_register = false;  // host memory can be made shared memory
  u32 compute_capability = 0;  // 87 is sm_87
  u32 n_sms = 0;
  u64 l2_bytes = 0;
  u64 memory_bytes = 0;          // device memory in all; 0 for the CPU
  u64 memory_free_bytes = 0;     // when it was asked; 0: not known before open() (a discrete GPU)
  u64 headroom_bytes = 0;        // what reserve() leaves to the system: none where it is another's
  u64 slab_bytes_max = 0;        // what one reserve() should ask for; a larger piece gets its own
  u64 slab_alignment_bytes = 0;  // what the driver rounds a slab up to; slabs are planned in it
};

// "cpu" always works; "cuda" fails with the reason where this build or this machine has no GPU;
// "auto" takes the GPU if there is one and says on `why_cpu` why not otherwise. Asking makes no
// context and takes no memory.
struct DeviceChoice {
  DeviceFacts facts{};
  const char* why_cpu = nullptr;
  bool built = false;  // this build has a GPU backend, so a missing GPU is worth a warning
};
Result<DeviceChoice> device_choose(const char* wanted, u32 gpu_idx = 0);

// An address on the device, distinct so that host code cannot read through it; raw() is for the
// arguments of kernels alone.
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
// What a stream takes before it blocks whoever enqueues more; CUDA names no number, 1,024 is what
// its drivers have. stream_progress.h stays below it.
inline constexpr u32 kStreamLaunchesMax = 1024;

struct GpuEvent;
struct GpuGraph;

struct GraphUse {
  u32 n_graphs = 0;
  u64 bytes = 0;  // of device memory, measured while they were made; 0 where the driver shows none
};

class Device {
 public:
  virtual const DeviceFacts& facts() const = 0;
  // Once on every thread that goes on with a device which another thread opened.
  virtual Result<void> bind_thread() = 0;
  // Now. On an integrated GPU this is the system's MemAvailable: the driver's own figure counts the
  // page cache as used.
  virtual Result<u64> memory_free_bytes() = 0;
  // What the driver took since open() beside our slabs: modules, local memory, graphs, libraries'
  // workspaces; on an integrated GPU the context too. Measured as free memory that is gone, so what
  // another process took meanwhile is in it: warm everything, then ask once, before READY. On an
  // integrated GPU every process takes from that memory, so the figure is no reason to refuse.
  // `host_bytes` is what this process reserved of host memory since open(); it counts where both
  // are the same memory.
  virtual Result<u64> driver_bytes(u64 host_bytes) = 0;

  // Device memory, one contiguous slab; not zeroed. `name` is static and stands in the error.
  virtual Result<DeviceSlab> reserve(const char* name, u64 bytes) = 0;
  virtual void release(const DeviceSlab& slab) = 0;  // exactly what reserve() gave
  // Makes host memory shared memory: anonymous, sector-aligned, no huge pages (Reserve's).
  // Status::unsupported where facts().host_register is false: pinned memory serves then.
  virtual Result<DeviceBytes> register_host(std::span<std::byte> bytes) = 0;
  virtual void unregister_host(std::span<std::byte> bytes) = 0;  // exactly what was registered
  // Host memory of the driver's own, at a sector at least: shared memory, too, where nothing can be
  // registered. pinned_address(): of a part of it, for the GPU.
  virtual Result<std::span<std::byte>> reserve_pinned(const char* name, u64 bytes) = 0;
  virtual void release_pinned(std::span<std::byte> bytes) = 0;
  virtual Result<DeviceBytes> pinned_address(std::span<std::byte> bytes) = 0;

  // Puts a kernel's code (GpuTable::each_kernel) into the GPU's memory, which the driver would take
  // when the kernel is first launched otherwise. Not while capturing.
  virtual Result<void> load_kernel(const void* kernel) = 0;

  // In order on one stream, in any order between streams. Host memory that is neither registered
  // nor pinned is copied as well, more slowly, and perhaps before the call returns.
  virtual GpuStream* stream(StreamId id) = 0;
  virtual void copy_in(DeviceBytes to, std::span<const std::byte> from, GpuStream* on) = 0;
  virtual void copy_out(std::span<std::byte> to, DeviceBytes from, GpuStream* on) = 0;
  virtual void copy(DeviceBytes to, DeviceBytes from, u64 bytes, GpuStream* on) = 0;
  virtual void fill(DeviceBytes to, u8 value, u64 bytes, GpuStream* on) = 0;
  virtual void read(DeviceBytes from, u64 bytes, GpuStream* on) = 0;  // and drop: for the probe

  // At most kDeviceEventsMax. An event that was never recorded is done.
  virtual Result<GpuEvent*> create_event() = 0;
  virtual void destroy_event(GpuEvent* event) = 0;
  virtual void record(GpuEvent* event, GpuStream* on) = 0;
  virtual void wait(GpuStream* waits, GpuEvent* event) = 0;
  virtual Result<bool> is_done(GpuEvent* event) = 0;  // never blocks: device_wait.h has the limit
  virtual Result<u64> elapsed_ns(GpuEvent* from, GpuEvent* to) = 0;  // both done

  // What is enqueued on `on` until end_capture() is kept and not run. At most kDeviceGraphsMax.
  virtual Result<void> begin_capture(GpuStream* on) = 0;
  virtual Result<GpuGraph*> end_capture(GpuStream* on) = 0;
  virtual void launch(GpuGraph* graph, GpuStream* on) = 0;
  virtual void destroy_graph(GpuGraph* graph) = 0;
  virtual GraphUse graph_use() const = 0;

  // The first error of anything enqueued, or nothing. device_lost stays; others are told once. Not
  // while capturing.
  virtual Result<void> check() = 0;
  virtual bool is_lost() const = 0;
  // Takes the device for lost: it hung, or said nonsense.
  virtual void give_up() = 0;

 protected:
  ~Device() = default;
};

struct DeviceOpenArgs {
  u32 gpu_idx = 0;
  // Of the compute stream, where a camera pipeline shares the GPU: 0 is the driver's normal, lower
  // is sooner. Copies always go first, they are short.
  i32 compute_priority = 0;
};

// Where a system's device stands; the engine lends it, so that the core needs no allocation.
inline constexpr u64 kSystemDeviceBytes = 16 * kKiB;
struct alignas(64) SystemDeviceMemory {
  std::byte bytes[kSystemDeviceBytes];
};

// Makes the context and the streams; on failure nothing is kept. `memory` is lent until close,
// which gives everything back that the device itself holds (slabs are their owners').
Result<Device*> system_device_open(SystemDeviceMemory& memory, const DeviceOpenArgs& args);
void system_device_close(Device* device);

}  // namespace tarn
