// Attention on a GPU over KV that lies in the host's memory and on disk. Rows are written into
// frames of the host's memory. A layer's groups come to the device in stripes, of which the first
// ones may stay there; of a run that reads chosen slots the host chooses and gathers, and what it
// got is attended to. The host has its part in every layer, so no step is a graph; bits are those
// of KV on the device.
#pragma once

#include <optional>
#include <utility>

#include "runtime/exec/gpu/attention.h"

namespace tarn::exec {

class GpuParts final : public GpuAttention {
 public:
  explicit GpuParts(GpuStep* step) : step_(*step) {}

  Result<void> open() override;
  void close() override;
  void begin_step(const step::Batch& batch) override;
  bool launch(const step::Batch&) override { return false; }  // the host has its part in a step
  void begin_ops(const step::Batch&) override {}
  void attend(const Attended& a) override;
  u64 take_kv_bytes() override { return std::exchange(kv_bytes_, 0); }
  u32 n_kept_groups(const step::Run& run) const override;
  u64 n_stripes_kept() const override { return n_stripes_kept_; }
  Result<void> capture(const StepCapture&) override { return {}; }
  Result<void> warm() override { return {}; }

 private:
  const GpuSizes& sizes() const { return step_.sizes(); }
  const GpuAttentionMemory& mine() const { return step_.regions().attention; }
  const GpuHostMemory& host() const { return step_.host(); }
  void count(const step::Batch& batch);
  void attend_whole(const Attended& a, step::Run& run);
  // A stripe of a layer: groups [begin, end), to be attended to at `memory`, whose addresses stand
  // in the table from table_at on.
  struct Stripe {
    u32 begin, end;
    u8* memory;
    u64 table_at;
    std::optional<u32> kept;  // the piece that it may stay in
  };
  Stripe stripe_of(const step::Run& run, u32 cache_layer, u32 begin, u32 n_groups);
  bool stage(step::Run& run, u32 cache_layer, const Stripe& stripe);
  void attend_chosen(const Attended& a, step::Run& run);
  void attend_gathered(const Attended& a, const step::Run& run);
  bool bring_query(const step::Run& run, step::Rows q);
  kernels::GpuPages pages_at(u64 table_at, u32 cache_layer, u32 row) const;
  kernels::GpuQuantized acts(const Attended& a, u32 row) const;
  bool wait_for_host_part();

  GpuStep& step_;
  step::StepHost* step_host_ = nullptr;
  GpuEvent* host_part_ = nullptr;  // what the host waits for within a step
  kv::StripeCache kept_{};
  u64 n_stripes_kept_ = 0;
  u64 kv_bytes_ = 0;
};

}  // namespace tarn::exec
