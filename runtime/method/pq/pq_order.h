// The middle once more on the disk, by pairs of codes: a layer's extents are written when its index
// is made, and say where the tokens lie that a step wants (kv/extents.h, method/pq/pair_order.h).
//
//   extent   of a (session, layer, KV head); it follows the index whose codes it is ordered by
//   memory   to write from: that of the session's caches
//   thread   the engine's; names and orders of a head: any worker
#pragma once

#include "runtime/method/disk_order.h"
#include "runtime/method/index_memory.h"
#include "runtime/method/pq/codebook_record.h"

namespace tarn::method {

class PqOrder final : public DiskOrder {
 public:
  explicit PqOrder(IndexMemory* memory) : memory_(*memory), args_(memory->args) {}
  static DiskOrder* make(std::byte* at, IndexMemory* memory);
  static u64 scratch_bytes(u64 n_slots);

  void forget(const IndexSession& s) override;
  void truncate(const IndexSession& s, u32 n_tokens) override;
  void truncate_cache(const IndexSession& s, u32 head, u32 n_tokens, kv::SlotCache& cache) override;
  void note_query(u32 session, u32 cache_layer, const f32* q) override;
  Result<void> lay_out(IndexSession& s, u32 cache_layer) override;
  bool has_extents(const IndexSession& s, u32 cache_layer) const override;
  u64 saved_bytes(const IndexSession& s, u32 head) const override;
  void save(const IndexSession& s, u32 head, std::span<std::byte> record) override;
  void adopt(const IndexSession& s, u32 head, std::span<const std::byte> record) override;
  void name_slots(const NameArgs& args, std::span<const u32> chosen,
                  std::span<kv::WantedSlot> named) override;
  void choose_orders(const NameArgs& args, std::span<const u32> chosen,
                     std::span<kv::ExtentWant> places) override;

 private:
  // A part of a layer that is written to its extents.
  struct Layout {
    u32 cache_layer;
    KeyWindow slots;             // of the extents
    u32 order;                   // in them
    u32 place_begin, place_end;  // of each head's, in that order
    std::span<std::byte> memory;
  };
  u32 extent_of(const IndexSession& s, u32 head) const { return memory_.extent_of(s, head); }
  // Returns the slots that the session's job has clustered and that lie in whole groups.
  KeyWindow extent_slots(const IndexSession& s) const;
  OrderMemory own_memory() const;
  std::span<u32> pair_counters(u32 kv_head) const;
  f32* last_query(u32 session, u32 cache_layer) const;
  void place_pairs(const IndexSession& s, u32 cache_layer, const KeyWindow& slots, u32 order);
  Result<void> write_part(const IndexSession& s, const Layout& layout);

  IndexMemory& memory_;
  const SelectorArgs& args_;
};

}  // namespace tarn::method
