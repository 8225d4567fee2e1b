// The parts of a step's attention where rows select: the slots that heads choose, and whole windows
// (kv/parts/whole_parts.h) for the rows that do not.
//
//   in memory      choice, gather and attention of a head are one task
//   over a disk    the heads of a layer choose; what they chose begins to come; then they attend.
//                  Heads go as many at a time as there are workers
//   on a device    the rows choose and code there
//   thread         the engine's; choose() on any worker, a (layer, KV head) a task
//   errors         the disk's: the run fails, the others go on
#pragma once

#include <array>

#include "runtime/kv/parts/whole_parts.h"
#include "runtime/method/index_memory.h"

namespace tarn::method {

class StepParts final : public kv::PartSource {
 public:
  StepParts(kv::KvCache* kv, IndexMemory* memory)
      : whole_(kv), memory_(*memory), args_(memory->args) {}

  u32 n_together(std::span<const step::Run> runs) const override { return whole_.n_together(runs); }
  bool wants_query(const step::Run& run) const override {
    return run.selects || memory_.extents() != nullptr;
  }
  void begin(std::span<step::Run> runs, u32 cache_layer, const f32* query) override;
  bool next(std::span<step::Run> runs, u32 cache_layer, u32 group_end, step::KvPart& part) override;
  void give_back(std::span<const step::Run> runs, u32 cache_layer,
                 const step::KvPart& part) override;
  step::ChosenSlots choose(const Head& head, u32 worker_idx) override;
  step::DeviceRow take_device_row(const step::Run& run) override;

  // Returns, for the row that selects, the groups of the middle of which it reads chosen slots
  // alone.
  void offloaded_groups(u32 session, u32* begin, u32* end) const;
  // Slots that each of its heads attends to: sinks, local ones, and its budget of the middle.
  u32 n_read(u32 session) const;

  // The effort of all workers together, since the last call.
  struct Spent {
    u64 select_ns = 0, gather_ns = 0;
    u64 kv_bytes = 0;  // of the slots attended to
    u64 n_slots = 0;   // attended to, a head each
    u64 n_far = 0;     // of them, of groups that may be on disk
    u64 n_cached = 0;  // of these, in the cache
    u32 n_units = 0;   // of clustering
  };
  Spent take_spent();

 private:
  // Returns whether the slots that it chooses come from a disk.
  bool fetches(const step::Run& run) const { return run.selects && args_.kv->has_tiers(); }
  struct alignas(64) OfWorker {
    Spent spent{};
  };
  // A layer of a run that selects over memory and disk.
  struct Layer {
    const step::Run* run = nullptr;
    u32 cache_layer = 0;
    const f32* q = nullptr;
  };
  u32 choose_slots(const Head& head, const KeyPages& keys, std::span<u32> slots, u32 worker_idx);
  void note_attended(Spent& spent, u64 n_slots) const;
  Head head_of(const Layer& layer, u32 kv_head) const;
  Result<void> begin_layer(const Layer& layer);
  u32 n_heads_at_once() const;
  Result<bool> next_heads(u32* begin, u32* end);
  void choose_of(const Layer& layer, u32 begin, u32 end);
  step::ChosenSlots take_fetched(const Head& head, u32 worker_idx);
  void want(const Layer& layer, u32 kv_head, u32 worker_idx);
  Result<void> take_in(const Layer& layer);
  Result<void> gather(const Layer& layer);
  Result<u32> fetch_lost(const Layer& layer, u32 begin, u32 end);

  kv::WholeParts whole_;
  IndexMemory& memory_;
  const SelectorArgs& args_;
  Layer layer_{};  // whose heads are read now, and which of them
  struct Turn {
    u32 head_begin = 0, head_end = 0;
    bool is_second = false;
  } turn_{};
  std::array<OfWorker, kWorkersMax> of_workers_{};
};

}  // namespace tarn::method
