// Quest's index of one KV head (Tang et al. 2024, arXiv:2406.10774; METHODS 8.1): per page of 16
// slots the smallest and the largest value of every channel of its keys, after RoPE.
//
//   bound of a page   U = sum over i of max(q[i]*min[i], q[i]*max[i]) >= q.k of every key in it
//   state             [pages, 2, head_dim] f32 in a region of region_bytes()
//   thread            one at a time
#pragma once

#include <span>

#include "runtime/method/pq_index.h"

namespace tarn::method {

class QuestIndex {
 public:
  static constexpr u32 kPageTokens = 16;
  static u64 region_bytes(u32 head_dim, u32 capacity_tokens);
  // Borrows the region, 64-byte aligned.
  void init(u32 head_dim, u32 capacity_tokens, std::span<std::byte> region);
  // Takes in the slots up to slot_end that it has not seen. `row` [head_dim] is scratch.
  void append(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
              std::span<f32> row);
  // Forgets the slots from n_slots on, and those before them in a page that is cut: append() takes
  // these in again.
  void truncate(u32 n_slots);
  // Becomes a copy of an index of the same shape.
  void copy_from(const QuestIndex& source);
  u32 head_dim() const { return head_dim_; }
  u32 n_slots() const { return n_slots_; }
  f32 bound(u32 page, const f32* q) const;

 private:
  f32* ends_ = nullptr;  // [pages, 2, head_dim], 2 = {min, max}
  u32 head_dim_ = 0;
  u32 capacity_tokens_ = 0;
  u32 n_slots_ = 0;
};

}  // namespace tarn::method
