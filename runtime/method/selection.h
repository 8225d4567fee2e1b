// runtime/method/selection.h
//
// Which slots one KV head attends to in one step: the sinks, k of the middle, the local window, in
// ascending order. Attention reads exactly these. Every method answers in the same form, so that
// they are compared at the same budget:
//
//   pq        k best by PqIndex's approximate scores (PQCache, METHODS 3.1)
//   oracle    k best by exact scores; bounds every index. The scores have attention's own bits
//   quest     whole pages by an upper bound of their scores, k tokens at most (Tang et al. 2024;
//             8.1)
//   window    no k: the local window is longer by as many tokens
//   random    k by a seeded hash of the slot: what a method that knows nothing reaches
//
// pq, oracle and quest rank by the sum over the group's heads of the softmax of their scores; where
// a KV head has one q head, by score. Ties go to the lower slot.
//
//   memory   scratch of selection_scratch_bytes(), nothing else
//   thread   any; heads are independent tasks
#pragma once

#include <span>

#include "runtime/method/pq_index.h"
#include "runtime/method/quest_index.h"
#include "runtime/method/segments.h"

namespace tarn::method {

struct SelectionShape {
  u32 n_group_heads;  // q heads of a KV head
  u32 head_dim;
  u32 lut_elems;  // PqShape's; 0 without an index of codes
  u32 middle_tokens_max;
};
u64 selection_scratch_bytes(const SelectionShape& shape);

struct SelectionArgs {
  const kernels::CpuTable& table;
  PqIndex::Query query;
  Segments segments;
  u32 k;                         // n_sinks + k + n_local slots come out at most
  std::span<std::byte> scratch;  // 64-byte aligned
  std::span<u32> slots;          // out; room for all of them
  u32 block_tokens = 1;          // pq: what is chosen whole
};

// Each returns how many slots were written. The index must hold the middle exactly: a token is
// coded in the step that evicts it from the local window, before the search, and so is a candidate
// in it.
// In blocks (METHODS 3.1, Disk): those of the largest sums of their middle tokens' weights, k /
// block_tokens of them. A block begins at a multiple of its size.
u32 select_pq(const SelectionArgs& args, const PqIndex& index);
u32 select_oracle(const SelectionArgs& args, const KeyPages& keys);
// Of the index's pages those that lie in the middle whole or in part, best first, while all their
// middle tokens fit k.
u32 select_quest(const SelectionArgs& args, const QuestIndex& index);
u32 select_window(const SelectionArgs& args);
u32 select_random(const SelectionArgs& args, u64 seed);
// Where all heads draw from; head i, counted over all (cache layer, KV head), has random_at(it, i).
inline constexpr u64 kRandomSeed = 20240715;

}  // namespace tarn::method
