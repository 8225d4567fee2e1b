// One gather of single slots of a layer: in which groups they lie, which sectors of a group they
// need, and where each slot is copied to. It reads no disk: the mover brings the bytes.
//
//   slots    of each KV head ascending, so groups come in ascending order, too
//   thread   the engine's
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/sequence.h"

namespace tarn::kv {

// A slot that one KV head wants, and its place in what it gets.
struct WantedSlot {
  u32 slot = 0;
  u32 place = 0;
};
struct GatherArgs {
  const Sequence* sequence = nullptr;
  u32 cache_layer = 0;
  // Sectors of these are read; others are brought whole, and stay as the plan says.
  u32 offloaded_begin = 0, offloaded_end = 0;
  std::span<const std::span<const WantedSlot>> wanted{};  // of each KV head, slots ascending
  std::span<u8* const> out{};  // of each KV head: K and V of `place` at place * slot bytes
  bool is_offloaded(u32 group) const { return group >= offloaded_begin && group < offloaded_end; }
};

class SlotGather {
 public:
  static u64 bookkeeping_bytes(const GroupShape& shape);
  void init(const GroupShape& shape, std::span<std::byte> bookkeeping);

  void begin(const GatherArgs* args);
  bool end();  // false: a part of it is lost
  void lose() { is_lost_ = true; }

  // The first group from `from` on that has a wanted slot.
  std::optional<u32> next_group(u32 from) const;
  // Of the group; until the next call.
  std::span<const u32> sectors(u32 group) const;
  // Copies the group's wanted slots to their places; returns how many bytes these were.
  u64 copy(u32 group, const u8* bytes) const;

 private:
  std::span<const WantedSlot> wanted_of(u32 kv_head, u32 group) const;

  GroupShape shape_{};
  std::span<u32> sectors_{};          // [of a group]
  const GatherArgs* args_ = nullptr;  // while one runs
  bool is_lost_ = false;
};

}  // namespace tarn::kv
