// Single slots of a layer: in which groups they lie, which sectors of a group they need, and where
// each is copied to. The mover brings the bytes.
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/sequence.h"

namespace tarn::kv {

// A slot that one KV head wants, and its rank among those that it wants.
struct WantedSlot {
  u32 slot = 0;
  u32 rank = 0;
};
struct GatherArgs {
  const Sequence* sequence = nullptr;
  u32 cache_layer = 0;
  // Sectors of these are read; others are brought whole, and stay as the plan says.
  u32 offloaded_begin = 0, offloaded_end = 0;
  std::span<const std::span<const WantedSlot>> wanted{};  // of each KV head, slots ascending
  std::span<u8* const> out{};  // of each KV head: K and V of `rank` at rank * slot bytes
  bool is_offloaded(u32 group) const { return group >= offloaded_begin && group < offloaded_end; }
};

// Returns the first group from `from` on that has a wanted slot.
std::optional<u32> next_wanted_group(const GatherArgs& args, const GroupShape& shape, u32 from);
// Sectors of the group that wanted slots touch, ascending, written to `out`: as many as it has.
std::span<const u32> wanted_sectors(const GatherArgs& args, const GroupShape& shape, u32 group,
                                    std::span<u32> out);
// Copies the group's wanted slots to their ranks; returns how many bytes these were.
u64 copy_wanted(const GatherArgs& args, const GroupShape& shape, u32 group, const u8* bytes);

}  // namespace tarn::kv
