// An engine's GPU while the engine is opened: what lies in its memory, what it may reach of the
// host's, its backend, its graphs. The calls stand here in the order in which open() makes them.
//
//   thread   the engine's
//   errors   what fails leaves the rest to close()
#pragma once

#include <array>
#include <span>

#include "platform/gpu/memory_probe.h"
#include "platform/log/log.h"
#include "runtime/exec/forward.h"
#include "runtime/exec/gpu/gpu_backend.h"
#include "runtime/exec/gpu/memory.h"

namespace tarn::exec {

class GpuPlacement {
 public:
  GpuPlacement() = default;
  GpuPlacement(const GpuPlacement&) = delete;
  GpuPlacement& operator=(const GpuPlacement&) = delete;

  // Everything is borrowed until close().
  struct Args {
    GpuBackendArgs backend{};  // without what is made here: memory, host, frames, quantizes
    Log log{};
    u32 n_groups = 0;                   // of KV on the device; 0: it lies over memory and disk
    const SlabCutter* slabs = nullptr;  // as the plan counted them
    u64 host_bytes = 0, driver_bytes_max = 0;  // likewise
    std::span<std::byte> arena{};              // all of the host's memory, with nothing in it yet
    // Regions that the device reaches; the last two of KV over memory and disk.
    std::span<std::byte> mirror{}, frames{}, gathered{};
  };

  // A driver may refuse to register the host's memory. Then the arena has to be the driver's own.
  void pin_arena(bool pins) {
    pins_arena_ = pins;
    registration_refused_ = false;
  }
  bool pins_arena() const { return pins_arena_; }
  // Opening failed because of such a refusal: another try, with pin_arena(true), may succeed.
  bool registration_refused() const { return registration_refused_; }

  // Loads the kernels, reserves the device's memory, registers the host's.
  Result<void> reserve(const Args& args, const model::ModelDescription& model);
  Result<model::Weights> load_weights(model::LoadArgs load);
  // Regions that the device reaches: they were handed out here.
  std::span<std::byte> frames() const { return args_.frames; }
  std::span<std::byte> gathered() const { return args_.gathered; }
  // What is left of the mirror, for others.
  Carver& mirror() { return mirror_; }
  const GpuHostMemory& host() const { return args_.backend.host; }
  Result<void> open_backend(const model::Weights& weights);
  // Captures every decode step's graph, so that nothing is captured after READY. Ops see the state
  // of `forward`, which stands for a full bucket; `logit_rows` are rows_max row numbers.
  Result<void> capture_graphs(const ForwardArgs& forward, std::span<const u32> logit_rows,
                              step::Rows logits);
  // Runs all graphs once: the driver may need more memory for it.
  Result<void> warm_graphs() { return backend_.graphs().warm(); }
  // What the driver took beside our slabs, against its limit.
  Result<void> check_driver_bytes();
  void close();

  GpuBackend& backend() { return backend_; }
  const GpuBackend& backend() const { return backend_; }
  GpuMemory& memory() { return memory_; }
  const MemoryProbe& probe() const { return probe_; }
  u64 driver_bytes() const { return driver_bytes_; }

 private:
  Result<DeviceBytes> register_host(std::span<std::byte> bytes);
  Unexpected refused(const Error& error);
  Result<void> measure_memory();
  Result<void> capture_step(const ForwardArgs& forward, std::span<const u32> logit_rows,
                            step::Rows logits);

  Args args_{};
  bool pins_arena_ = false;
  bool registration_refused_ = false;
  GpuMemory memory_{};
  GpuBackend backend_{};
  MemoryProbe probe_{};
  u64 driver_bytes_ = 0;
  Carver mirror_{};
  std::array<std::span<std::byte>, 3> registered_{};
  u32 n_registered_ = 0;
};

}  // namespace tarn::exec
