// The parts of what attention reads of the KV of a run's layer, part after part. The softmax state
// goes from one to the next, so parts have the bits of one pass (kernels/attn/attn.h).
//
//   whole    a run that reads everything: a pin set of its groups, in memory while the part is held
//   chosen   a run that reads chosen slots: those of some of its KV heads. The slots of a head are
//            cut into tiles by rank, so where a slot lies changes no bit
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn::step {

// A piece of a run's KV. A run that ends inside the part uses only the slots before its own end.
struct KvPart {
  u32 group_begin = 0, group_end = 0;
  u32 head_begin = 0, head_end = 0;  // of a chosen part: KV heads
};

inline constexpr u32 kGatherTokens = 256;  // chosen slots that attention takes at a time

// The slots that one KV head of a run chose. They are lent until the worker's next choice; where
// `pages` are there, until the run's next layer.
struct ChosenSlots {
  std::span<const u32> slots{};       // ascending; none: they come with a later part
  const u8* const* pages = nullptr;   // of K and V in the order of ranks; nullptr: copied here
  const u8* const* groups = nullptr;  // then of the sequence, where slots lie, and room for a tile
  u8* tile = nullptr;
  const u8* const* tile_pages = nullptr;
  f32* state = nullptr;  // of attention between two tiles
};

// The slots [0, n_tokens) of a sequence: sinks | middle | local (method/token_ranges.h).
struct TokenRanges {
  u32 middle_begin = 0;
  u32 middle_end = 0;
  u32 n_tokens = 0;
  u32 n_sinks() const { return middle_begin; }
  u32 n_middle() const { return middle_end - middle_begin; }
  u32 n_local() const { return n_tokens - middle_end; }
};

// A row that chooses on a device.
struct DeviceRow {
  TokenRanges ranges;
  u32 k;  // of the middle
  // Keys [n_coded, end) of the middle get codes in the row's step; n_counted of them had one before
  // a cut.
  u32 n_coded, n_counted;
};

}  // namespace tarn::step
