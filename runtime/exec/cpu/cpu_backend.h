// The backend of the CPU. Ops are cut into tasks (tasks.h) and carried out when they are called;
// attention is a part of its own (attention.h).
//
//   memory   scratch that the plan set aside; the backend owns none
//   thread   the engine's, which is worker 0 of the pool
#pragma once

#include <span>

#include "runtime/exec/cpu/attention.h"
#include "runtime/exec/cpu/tasks.h"

namespace tarn::exec {

class CpuBackend final : public Backend {
 public:
  void init(const CpuBackendArgs& args) {
    args_ = args;
    tasks_.init(args.workers);
  }

  const char* isa() const override { return args_.table->isa; }
  void begin_step(const step::Batch& batch) override;
  void note_kept_groups(const step::Batch&) const override {}  // there is no device
  bool may_abandon() const override { return true; }
  bool is_abandoned() const override { return tasks_.is_abandoned(); }
  void embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) override;
  void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) override;
  void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) override;
  void project(Rows x, u32 n, std::span<const Projection> projections) override;
  void project_add(const ResidualProjection& projection, u32 n) override;
  void rope(Rows q, Rows k, u32 n) override;
  void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) override;
  void gather(const step::Batch& batch, Rows x, u32 d, Rows out) override;
  void fetch(Rows from, u32 n, u64 d, Rows to) override;
  void summarize(Rows logits, u32 n, u32 d) override;
  kernels::LogitsSummary summary(u32 row) const override;
  Result<void> finish() override { return args_.watched.check(); }
  void kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) override;
  void attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) override {
    attention_.attend(batch, cache_layer, q, out);
  }
  Traffic take_traffic() override;

 private:
  void quantize(Rows x, u32 k, u32 n);
  void rope_heads(Rows x, u32 n, u32 n_heads);

  CpuBackendArgs args_{};
  CpuTasks tasks_{};
  CpuAttention attention_{&args_, &tasks_};
  u64 weight_bytes_ = 0;
  Rows summarized_{};  // rows of as many logits as their stride
};

}  // namespace tarn::exec
