// The parts of full attention: a run reads every slot of its KV, in pin sets of whole groups.
//
//   in place     all groups of a layer are one part, of any number of runs together
//   over a disk  a part is as many groups as come to memory at a time, pinned until give_back()
//   errors       the disk's: the run fails, the others go on
//   thread       the engine's
#pragma once

#include "runtime/kv/kv_cache.h"
#include "runtime/kv/parts/part_source.h"

namespace tarn::kv {

class WholeParts final : public PartSource {
 public:
  explicit WholeParts(KvCache* kv) : kv_(*kv) {}

  u32 n_together(std::span<const step::Run> runs) const override {
    return kv_.n_together(static_cast<u32>(runs.size()));
  }
  bool wants_query(const step::Run& /*run*/) const override { return false; }
  void begin(std::span<step::Run> /*runs*/, u32 /*cache_layer*/, const f32* /*query*/) override {}
  bool next(std::span<step::Run> runs, u32 cache_layer, u32 group_end, step::KvPart& part) override;
  void give_back(std::span<const step::Run> runs, u32 cache_layer,
                 const step::KvPart& part) override;
  // Asserts, as the next one does: no run chooses.
  step::ChosenSlots choose(const Head& head, u32 worker_idx) override;
  step::DeviceRow take_device_row(const step::Run& run) override;

  // Returns whether the run has another part. A failure of the disk ends the run, and is noted.
  bool goes_on(step::Run& run, const Result<bool>& has_part);

 private:
  KvCache& kv_;
};

}  // namespace tarn::kv
