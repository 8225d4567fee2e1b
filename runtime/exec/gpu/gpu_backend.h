// The backend of a GPU: each op enqueues kernels on the compute stream. begin_step() sends what
// kernels read of the step; nothing is waited for before finish(), but for the host's part in a
// layer.
//
//   parts     what the ops share of a step: step.h. Products: products.h. Attention: over KV in the
//             device's memory (resident.h), or in the host's (parts.h)
//   fused     where a product of quantised weights reads what a norm, an activation or attention
//             writes, those write the quantised form too; q and k turn in one launch; the output
//             and down products add to the residual stream themselves. 11 launches a layer
//   greedy    a step that takes the best of each row brings its summary, 12 bytes a 2,048 logits,
//             instead of the logits; a graph has that kernel too, with no rows where none asks
//   disk      rows of an embedding table that stays in the file are read by the host before the
//             step and sent with its state
//   memory    the plan's: the device's part and the host's part of it are lent, the backend owns an
//             event alone
//   thread    the engine's
//   errors    finish() tells the device's first one. A GPU that gets no further for kGpuWaitNsMax
//             is taken for lost (platform/gpu/stream_progress.h), however slow one that does is not
#pragma once

#include "runtime/exec/backend.h"
#include "runtime/exec/gpu/parts.h"
#include "runtime/exec/gpu/products.h"
#include "runtime/exec/gpu/resident.h"

namespace tarn::exec {

class GpuBackend final : public Backend {
 public:
  GpuBackend() = default;
  GpuBackend(const GpuBackend&) = delete;
  GpuBackend& operator=(const GpuBackend&) = delete;
  ~GpuBackend() override { close(); }

  // Attends over KV in the host's frames, which comes in stripes. Before open(), until close().
  void attend_in_stripes() { attention_ = &parts_; }
  Result<void> open(const GpuBackendArgs& args);
  void close();

  const char* isa() const override { return step_.args().table->name; }
  void begin_step(const step::Batch& batch) override;
  void note_kept_groups(const step::Batch& batch) const override;
  bool may_abandon() const override { return false; }
  bool is_abandoned() const override { return false; }
  void embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) override;
  void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) override;
  void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) override;
  void project(Rows x, u32 n, std::span<const Projection> projections) override;
  void project_add(const ResidualProjection& projection, u32 n) override;
  void rope(Rows q, Rows k, u32 n) override;
  void kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) override;
  void attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) override;
  void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) override;
  void gather(const step::Batch& batch, Rows x, u32 d, Rows out) override;
  void fetch(Rows from, u32 n, u64 d, Rows to) override;
  void summarize(Rows logits, u32 n, u32 d) override;
  kernels::LogitsSummary summary(u32 row) const override;
  Result<void> finish() override { return step_.finish(); }
  Traffic take_traffic() override;

  GpuResident& resident() { return resident_; }
  GpuAttention& attention() const { return *attention_; }

 private:
  void write_state(const step::Batch& batch);

  GpuStep step_{};
  GpuProducts products_{&step_};
  GpuResident resident_{&step_};
  GpuParts parts_{&step_};
  GpuAttention* attention_ = &resident_;
};

}  // namespace tarn::exec
