// Attention on a GPU over KV in its own memory. Rows that select choose there. Tables of where a
// session's groups lie are kept on both sides; only what changed is looked at and sent.
#pragma once

#include "runtime/exec/gpu/attention.h"
#include "runtime/exec/gpu/chooser.h"
#include "runtime/exec/gpu/chunks.h"
#include "runtime/exec/gpu/graphs.h"
#include "runtime/exec/gpu/indexes.h"

namespace tarn::exec {

class GpuResident final : public GpuAttention {
 public:
  explicit GpuResident(GpuStep* step)
      : step_(*step), chooser_(step), graphs_(step), indexes_(step), chunks_(step) {}

  Result<void> open() override;
  void close() override;
  void begin_step(const step::Batch& batch) override;
  bool launch(const step::Batch& batch) override { return graphs_.launch(batch); }
  void begin_ops(const step::Batch& batch) override;
  void attend(const Attended& a) override;
  u64 take_kv_bytes() override { return std::exchange(kv_bytes_, 0); }
  u32 n_kept_groups(const step::Run&) const override { return 0; }  // it has no frames
  u64 n_stripes_kept() const override { return 0; }
  Result<void> capture(const StepCapture& capture) override { return graphs_.capture(capture); }
  Result<void> warm() override { return graphs_.warm(); }

  GpuIndexes& indexes() { return indexes_; }
  GpuChunks& chunks() { return chunks_; }

 private:
  template <class Fn>
  void each_choosing(const step::Batch& batch, Fn&& fn) const;
  void count(const step::Batch& batch);

  GpuStep& step_;
  GpuChooser chooser_;
  GpuGraphs graphs_;
  GpuIndexes indexes_;
  GpuChunks chunks_;
  u64 kv_bytes_ = 0;
};

}  // namespace tarn::exec
