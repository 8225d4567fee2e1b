// The ops of backend.h on a GPU, but for attention: each enqueues kernels on the compute stream.
//
//   products  a row's bits do not depend on what runs beside it: up to 8 rows by matvec, more of
//             quantised weights by matmat, which has its bits; of f16, 8 rows at a time
//   fused     where a product of quantised weights reads what a norm, an activation or attention
//             writes, those write the quantised form too; q and k turn in one launch; the output
//             and down products add to the residual stream themselves. 11 launches a layer
//   greedy    a step that takes the best of each row brings its summary, 12 bytes a 2,048 logits,
//             instead of the logits; a graph has that kernel too, with no rows where no run asks
#pragma once

#include <span>

#include "runtime/exec/backend.h"
#include "runtime/exec/gpu/step.h"

namespace tarn::exec {

class GpuOps : public Backend {
 public:
  const char* isa() const override { return step_.args().table->name; }
  bool may_abandon() const override { return false; }
  bool is_abandoned() const override { return false; }
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
  Result<void> finish() override { return step_.finish(); }
  Traffic take_traffic() override;

 protected:
  // Returns where an op that writes rows of k elements at x leaves their quantised form as well, if
  // a product may want it. Every op that writes rows forgets the one before.
  kernels::GpuQuantized acts_for(Rows x, u64 k);
  void forget_acts() { quantized_ = nullptr; }

  GpuStep step_{};
  Traffic traffic_{};

 private:
  void quantize(Rows x, u32 k, u32 n);
  void multiply(Rows x, u32 n, std::span<const Projection> projections, kernels::Store store);

  const f32* quantized_ = nullptr;  // the rows whose quantised form is in acts; nullptr: none
};

}  // namespace tarn::exec
