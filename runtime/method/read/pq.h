// PQCache (arXiv:2407.12820): the k best by the approximate scores of codes. It is a trained
// method: IndexJobs clusters its index, a layer at a time.
#pragma once

#include "runtime/method/method.h"

namespace tarn::method {

// The index must hold the middle exactly: a token is coded in the step that evicts it from the
// local window, before the search, and so is a candidate in it. In blocks: those of the largest
// sums of their middle tokens' weights, k / block_tokens of them. A block begins at a multiple of
// its size.
u32 select_pq(const SelectionArgs& args, const PqIndex& index);

class PqReader final : public Reader {
 public:
  explicit PqReader(const ReaderArgs& args);
  static u64 region_bytes(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);
  void truncate(u32 middle_end) override;
  void copy_from(const Reader& source) override;
  u32 n_taken(u32 slot_end) const override;
  void take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch) override;
  u32 choose(const SelectionArgs& args, const KeyPages& keys) const override;

  PqIndex index{};

 private:
  const SelectConfig& config_;
};

}  // namespace tarn::method
