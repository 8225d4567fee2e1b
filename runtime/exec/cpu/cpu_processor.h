// The CPU as the processor of an engine: everything lies in the arena, and nothing is reserved.
// A device that is lent without kernels is watched: its errors are the steps' (OpenArgs::device).
#pragma once

#include "runtime/exec/cpu/cpu_backend.h"
#include "runtime/exec/cpu/host_rows.h"
#include "runtime/exec/processor.h"

namespace tarn::exec {

class CpuProcessor final : public Processor {
 public:
  CpuProcessor() = default;
  CpuProcessor(const CpuProcessor&) = delete;
  CpuProcessor& operator=(const CpuProcessor&) = delete;

  ArenaUse arena_use(Reserve* system, Device*, const DeviceFacts&) override {
    return {.reserve = system};
  }
  Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model,
                       u32 n_groups) override;
  Result<void> reach_frames(std::span<std::byte>, std::span<std::byte>) override { return {}; }
  Result<model::Weights> load_weights(model::LoadArgs load) override;
  Carver& sampling() override { return sampling_; }
  Result<StepSetup> open(const model::Weights& weights, Rows host_logits) override;
  Result<void> warm_up(const StepCapture&, FirstSteps&) override { return {}; }
  ProcessorFacts facts() const override { return {.numerics_id = kv::kCpuNumericsId}; }
  HostRows& host_rows() override { return host_rows_; }
  void give_up() override { watched_.give_up(); }
  void close() override { watched_ = {}; }

 private:
  ProcessorArgs args_{};
  WatchedDevice watched_{};
  Carver sampling_{};
  CpuBackend backend_{};
  CpuHostRows host_rows_{};
};

}  // namespace tarn::exec
