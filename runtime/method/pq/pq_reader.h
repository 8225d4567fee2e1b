// Product quantisation as a method: PqIndex (pq_index.h) behind the interface of readers. A part of
// its training is a sub-space, and what it saves is a record of its own (codebook_record.h).
#pragma once

#include "runtime/method/method.h"
#include "runtime/method/pq/pq_index.h"

namespace tarn::method {

class PqReader final : public Reader {
 public:
  explicit PqReader(const ReaderArgs& args);
  static u64 region_bytes(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);
  static Result<void> check(const model::ModelSpec& spec, const SelectConfig& config);

  void forget() override { index_.forget(); }
  void truncate(u32 middle_end) override { index_.truncate(middle_end); }
  void copy_from(const Reader& source) override;
  u32 n_taken(u32 /*slot_end*/) const override { return index_.slot_begin() + index_.n_tokens(); }
  void take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch) override {
    index_.take_in(table, keys, slot_end, scratch);
  }
  u32 choose(const SelectionArgs& args, const KeyPages& /*keys*/) const override {
    return index_.choose(args);
  }

  void begin_training(u32 slot_begin, u32 n_rows) override;
  void train(const TrainUnit& unit) override;
  void end_training() override { index_.end_codebook(); }
  u32 n_trained() const override { return index_.n_clustered(); }
  u64 saved_bytes() const override;
  void save(std::span<std::byte> out) const override;
  bool load(u32 slot_begin, u32 n_rows, std::span<const std::byte> bytes) override;

  const PqIndex& index() const { return index_; }

 private:
  const SelectConfig& config_;
  PqIndex index_{};
  u32 n_updates_ = 0;  // of the training under way, at most
};

// Returns the index of a reader that is PQ's.
inline const PqIndex& pq_of(const Reader* reader) {
  return static_cast<const PqReader&>(*reader).index();
}

TrainNeeds pq_train_needs(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens);
extern const Training kPqTraining;

}  // namespace tarn::method
