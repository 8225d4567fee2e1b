// Gathers the slots that attention reads for a row with selection. A KV head's slots are, in this
// order,
//
//   sinks    [0, n_sinks)
//   chosen   n_sinks + places[h][i], i < n_places: the order of places is the order of ranks
//   local    [local_begin, local_begin + n_slots - n_sinks - n_places)
//
// K and V of the slot of rank r go to slot r of the pages at `out`, which lie group by group in the
// layout of the source pages. attend over them, with visible = n_slots, is attention over the
// chosen slots in the order of their ranks. If all slots are chosen, the bits are those of full
// attention.
//
//   places     [n_kv_heads, places_stride] u32
//   segments   on the device; n_slots is slots_max at most
//   out        groups of n_kv_heads pages, pages.page_stride bytes apart
//
// Cost     reads and writes K and V of the chosen slots once.
#pragma once

#include "kernels/attn/attn_gpu.h"

namespace tarn::kernels {

struct GpuSegments {
  u32 n_sinks;
  u32 n_places;
  u32 local_begin;
  u32 n_slots;
};

struct GpuGatherSlotsArgs {
  GpuPages pages;
  u32 row;  // of pages.tables
  const u32* places;
  u64 places_stride;  // elements
  const GpuSegments* segments;
  u32 slots_max;
  u8* out;
};

}  // namespace tarn::kernels
