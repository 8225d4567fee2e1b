// Quest (Tang et al. 2024, arXiv:2406.10774; METHODS 8.1): whole pages of 16 slots by an upper
// bound of their scores. Of the index's pages those that lie in the middle whole or in part, best
// first, while all their middle tokens fit k.
//
//   bound of a page   U = sum over i of max(q[i]*min[i], q[i]*max[i]) >= q.k of every key in it
//   index             per page the smallest and the largest value of every channel of its keys,
//                     after RoPE: [pages, 2, head_dim] f32
#pragma once

#include "runtime/method/method.h"

namespace tarn::method {

class QuestReader final : public Reader {
 public:
  explicit QuestReader(const ReaderArgs& args);
  static u64 region_bytes(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);
  void forget() override { n_slots_ = 0; }
  // Drops a page that is cut: take_in() takes its slots in again.
  void truncate(u32 middle_end) override;
  void copy_from(const Reader& source) override;
  u32 n_taken(u32 slot_end) const override;
  void take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch) override;
  u32 choose(const SelectionArgs& args, const KeyPages& keys) const override;
  f32 bound(u32 page, const f32* q) const;

 private:
  f32* ends_;  // [pages, 2, head_dim], 2 = {min, max}
  u32 head_dim_, capacity_tokens_;
  u32 n_slots_ = 0;
};

}  // namespace tarn::method
