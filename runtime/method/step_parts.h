// runtime/method/step_parts.h
//
// The parts of a step's attention: KV in place, windows of what passes through memory, and chosen
// slots. It is where a backend meets the KV and selection.
#pragma once

#include "runtime/kv/kv_cache.h"
#include "runtime/method/part_source.h"
#include "runtime/method/selector.h"

namespace tarn::method {

class StepParts final : public PartSource {
 public:
  // A stream that is off leaves KV in place, and a selector that is off chooses nothing.
  StepParts(kv::KvCache* kv, Selector* selector) : kv_(*kv), selector_(*selector) {}

  u32 n_together(std::span<const step::Run> runs) const override {
    return in_place() ? static_cast<u32>(runs.size()) : 1;
  }
  bool wants_query(const step::Run& run) const override {
    return run.selects || selector_.wants_queries();
  }
  void begin(std::span<step::Run> runs, u32 cache_layer, const f32* query) override;
  bool next(std::span<step::Run> runs, u32 cache_layer, u32 group_end, step::KvPart& part) override;
  void give_back(std::span<const step::Run> runs, u32 cache_layer,
                 const step::KvPart& part) override;
  step::ChosenSlots choose(const Head& head, u32 worker_idx) override;
  DeviceRow take_device_row(const step::Run& run) override {
    return selector_.take_row(run.session);
  }

 private:
  bool in_place() const { return !kv_.has_tiers(); }
  bool may_go_on(step::Run& run, const Result<bool>& goes_on);

  kv::KvCache& kv_;
  Selector& selector_;
};

}  // namespace tarn::method
