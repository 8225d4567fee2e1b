// kernels/attn/gather_slots_gpu.h
//
// Chosen slots, one behind the other: what attention reads of a row that selects. K and V of slot
// slots[h][i] of KV head h go to rank i of pages that lie group by group from `out` on, in the
// layout of the pages they come from. attend over them, with visible = n_slots, is attention over
// the chosen slots in the order of their ranks, and over all of them it is full attention's bits.
//
//   slots    [n_kv_heads, slots_stride] u32;  n_slots: one number on the device, slots_max at most
//   out      groups of n_kv_heads pages, pages.page_stride bytes apart
//
// Cost     reads and writes K and V of the chosen slots once.
#pragma once

#include "kernels/attn/attn_gpu.h"

namespace tarn::kernels {

struct GpuGatherSlotsArgs {
  GpuPages pages;
  u32 row;  // of pages.tables
  const u32* slots;
  u64 slots_stride;  // elements
  const u32* n_slots;
  u32 slots_max;
  u8* out;
};

}  // namespace tarn::kernels
