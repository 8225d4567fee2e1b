// A GPU as the processor of an engine: what lies in its memory, what it may reach of the host's,
// its backend and its graphs.
#pragma once

#include <array>
#include <span>

#include "runtime/arena/pinned_reserve.h"
#include "runtime/exec/gpu/arena_reach.h"
#include "runtime/exec/gpu/gpu_backend.h"
#include "runtime/exec/gpu/host_rows.h"
#include "runtime/exec/gpu/memory.h"
#include "runtime/exec/processor.h"

namespace tarn::exec {

class GpuProcessor final : public Processor {
 public:
  GpuProcessor() = default;
  GpuProcessor(const GpuProcessor&) = delete;
  GpuProcessor& operator=(const GpuProcessor&) = delete;

  // Makes the arena the driver's own where the driver refuses to register the host's memory.
  void pin_arena(bool pins) {
    reach_ = pins ? &kPinnedArena : &kRegisteredArena;
    registration_refused_ = false;
  }
  // Opening failed because of such a refusal: another try, with pin_arena(true), may succeed.
  bool registration_refused() const { return registration_refused_; }

  ArenaUse arena_use(Reserve* system, Device* device, const DeviceFacts& planned) override;
  // Loads the kernels, reserves the device's memory, registers the mirror.
  Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model,
                       u32 n_groups) override;
  Result<void> reach_frames(std::span<std::byte> frames, std::span<std::byte> gathered) override;
  Result<model::Weights> load_weights(model::LoadArgs load) override;
  Carver& sampling() override { return mirror_; }  // what is left of it
  Result<StepSetup> open(const model::Weights& weights, Rows host_logits) override;
  // Captures every decode step's graph, so that nothing is captured after READY; runs all once, as
  // the driver may need more memory for it; holds what it took against its limit.
  Result<void> warm_up(const StepCapture& capture, FirstSteps& steps) override;
  ProcessorFacts facts() const override;
  HostRows& host_rows() override { return host_rows_; }
  void give_up() override { device().give_up(); }
  void close() override;

  Device& device() const { return *backend_args_.device; }
  GpuBackend& backend() { return backend_; }
  GpuMemory& memory() { return memory_; }
  const GpuHostMemory& host() const { return backend_args_.host; }

 private:
  Result<DeviceBytes> register_host(std::span<std::byte> bytes);
  Unexpected refused(const Error& error);
  Result<void> measure_memory();
  Result<void> check_driver_bytes();

  ProcessorArgs args_{};
  GpuBackendArgs backend_args_{};
  const ArenaReach* reach_ = &kRegisteredArena;
  PinnedReserve pinned_{};
  bool registration_refused_ = false;
  bool has_reserved_ = false;  // or has tried to
  GpuMemory memory_{};
  GpuBackend backend_{};
  GpuHostRows host_rows_{};
  MemoryProbe probe_{};
  u64 driver_bytes_ = 0;
  Carver mirror_{};
  std::array<std::span<std::byte>, 3> registered_{};
  u32 n_registered_ = 0;
};

}  // namespace tarn::exec
