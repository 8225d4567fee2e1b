// The indexes that a GPU chooses by, one a session, each as the host lays it out
// (method::PqIndex::layout). They go there on the compute stream, in order with the steps. Keys
// come on a stream of their own, beside a step that computes: those of slots that earlier steps
// wrote, which have ended.
#pragma once

#include "runtime/exec/gpu/step.h"
#include "runtime/method/device.h"

namespace tarn::exec {

class GpuIndexes final : public method::DeviceIndexes {
 public:
  explicit GpuIndexes(GpuStep* step) : step_(*step) {}

  Result<void> open();
  void close();

  bool is_on_device() const override { return true; }
  Result<u32> fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) override;
  void pages(const kv::Sequence& sequence, u32 cache_layer, u32 kv_head, u32 begin, u32 end,
             std::span<const u8*> out) const override;
  Result<void> put(u32 session, const std::byte* index) override;
  void tick(step::StepHost&) const override {}
  void copy(u32 from, u32 to) override;

 private:
  DeviceBytes index(u32 session) const;

  GpuStep& step_;
  GpuStream* keys_stream_ = nullptr;
  GpuEvent* fetched_ = nullptr;
};

}  // namespace tarn::exec
