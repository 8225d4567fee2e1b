// The smallest trained method there is: a token's code is the centroid nearest to the sum of its
// key's dims, and its score for a query is that centroid times the sum of the query's dims.
//
//   training   sums of a sample of keys, sorted: the centroids are the middles of 16 equal shares
//   region     centroids, f32 [16]; then codes, u8 [capacity_tokens], of slots from slot_begin on
//   saved      the centroids, and the codes of the rows that were trained
#pragma once

#include "runtime/method/method.h"

namespace tarn::lab {

class SumCodes final : public method::Reader {
 public:
  explicit SumCodes(const method::ReaderArgs& args);
  static u64 region_bytes(const SelectConfig& config, const method::KeyDims& keys,
                          u32 capacity_tokens);
  static method::TrainNeeds needs(const SelectConfig& config, const method::KeyDims& keys,
                                  u32 capacity_tokens);

  void forget() override { n_rows_ = n_trained_ = 0; }
  void truncate(u32 middle_end) override;
  void copy_from(const Reader& source) override;
  u32 n_taken(u32 /*slot_end*/) const override { return slot_begin_ + n_rows_; }
  void take_in(const kernels::CpuTable& table, const method::KeyPages& keys, u32 slot_end,
               std::span<std::byte> scratch) override;
  u32 choose(const method::SelectionArgs& args, const method::KeyPages& keys) const override;

  void begin_training(u32 slot_begin, u32 n_rows) override;
  void train(const method::TrainUnit& unit) override;
  void end_training() override { n_rows_ = n_trained_ = n_training_; }
  u32 n_trained() const override { return n_trained_; }
  u64 saved_bytes() const override;
  void save(std::span<std::byte> out) const override;
  bool load(u32 slot_begin, u32 n_rows, std::span<const std::byte> bytes) override;

 private:
  static constexpr u32 kCentroids = 16;
  static constexpr u32 kSampleRows = 256;
  // Writes codes of the slots [begin, end). `row` has room for a key.
  void code(const kernels::CpuTable& table, const method::KeyPages& keys, u32 begin, u32 end,
            f32* row);

  f32* centroids_;
  u8* codes_;
  u32 head_dim_, capacity_tokens_;
  u32 slot_begin_ = 0;
  u32 n_rows_ = 0;                      // that have codes
  u32 n_training_ = 0, n_trained_ = 0;  // rows of the training under way, and of the last one
};

inline constexpr method::Training kSumTraining = {.needs = SumCodes::needs};

}  // namespace tarn::lab
