// Quest (Tang et al. 2024, arXiv:2406.10774): whole pages by an upper bound of their scores.
#pragma once

#include "runtime/method/method.h"
#include "runtime/method/read/quest_index.h"

namespace tarn::method {

// Of the index's pages those that lie in the middle whole or in part, best first, while all their
// middle tokens fit k.
u32 select_quest(const SelectionArgs& args, const QuestIndex& index);

class QuestReader final : public Reader {
 public:
  explicit QuestReader(const ReaderArgs& args) {
    index_.init(args.keys.head_dim, args.capacity_tokens, args.region);
  }
  static u64 region_bytes(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);
  void forget() override { index_.truncate(0); }
  void truncate(u32 middle_end) override { index_.truncate(middle_end); }
  void copy_from(const Reader& source) override {
    index_.copy_from(static_cast<const QuestReader&>(source).index_);
  }
  u32 n_taken(u32 slot_end) const override { return std::min(index_.n_slots(), slot_end); }
  void take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch) override;
  u32 choose(const SelectionArgs& args, const KeyPages& /*keys*/) const override {
    return select_quest(args, index_);
  }

 private:
  QuestIndex index_{};
};

}  // namespace tarn::method
