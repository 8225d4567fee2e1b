// Which slots one KV head attends to in one step: the sinks, some of the middle, the local window,
// in ascending order. Attention reads exactly these. Every method (method.h) answers in this form,
// so that methods are compared at the same budget. Here stands what they share.
//
//   rank     by the sum over the group's heads of the softmax of their scores; where a KV head has
//            one q head, by score. Ties go to the lower slot
//   memory   scratch of selection_scratch_bytes(), nothing else
//   thread   any; heads are independent tasks
#pragma once

#include <span>

#include "kernels/cpu_table.h"
#include "runtime/arena/carver.h"
#include "runtime/method/token_ranges.h"

namespace tarn::method {

// One KV head's keys where attention reads them: pages as in kernels/attn/attn.h.
struct KeyPages {
  kernels::KvType type;
  const u8* const* pages;  // in slot order
  u32 page_tokens;
  u32 head_dim;
  u64 stride_bytes = 0;  // from a key to the next one; 0: its V lies between
  // Loads the keys of n slots as f32 [n_slots, head_dim].
  void load(const kernels::CpuTable& table, u32 slot_begin, u32 n_slots, f32* out) const;
};

struct Query {
  const f32* q;  // [n_heads, head_dim], the q heads of one KV head, after RoPE
  u32 n_heads;
  f32 scale;
};

struct SelectionArgs {
  const kernels::CpuTable& table;
  Query query;
  TokenRanges ranges;
  u32 k;                         // n_sinks + k + n_local slots come out at most
  std::span<std::byte> scratch;  // 64-byte aligned
  std::span<u32> slots;          // out; room for all of them
};

struct SelectionShape {
  u32 n_group_heads;  // q heads of a KV head
  u32 lut_elems;      // PqShape's; 0 without an index of codes
  u32 middle_tokens_max;
};
u64 selection_scratch_bytes(const SelectionShape& shape);

struct SelectionScratch {
  std::byte* radix;  // the radix' counts; weights of pairs
  f32* lut;          // [n_heads, lut_elems]
  f32* scores;       // [n_heads, n]
  f32* weights;      // [n]
  u32* places;       // [n]
  static SelectionScratch carve(Carver& carver, const SelectionShape& shape);
};
SelectionScratch carve_selection(const SelectionArgs& args, u32 lut_elems = 0);

// Scores [n_heads, n] to what the n candidates are ranked by.
const f32* rank_of(const SelectionArgs& args, const SelectionScratch& scratch, u32 n);

// Writes slots, and returns how many. Sinks, the chosen tokens of the middle, which ascend, and the
// local window:
u32 compose_slots(const SelectionArgs& args, const u32* places, u32 n_places);
// Sinks, the middle's part of chosen blocks, `first` the first of all, and the local window. Blocks
// of the middle's ends may be cut, so as many whole ones as fit k always fit.
u32 compose_blocks(const SelectionArgs& args, u32 block_tokens, u32 first,
                   std::span<const u32> places);
// Sinks, the k places of the largest values, and the local window.
u32 choose_best(const SelectionArgs& args, const SelectionScratch& scratch, const f32* values);

}  // namespace tarn::method
