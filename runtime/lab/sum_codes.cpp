#include "runtime/lab/sum_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::lab {
namespace {

// Returns the sum in the order of the dims, or 0 where that is no number.
f32 sum_of(const f32* x, u32 n) {
  const f32 sum = std::accumulate(x, x + n, 0.0f);
  return std::isfinite(sum) ? sum : 0.0f;
}

}  // namespace

SumCodes::SumCodes(const method::ReaderArgs& args)
    : centroids_(reinterpret_cast<f32*>(args.region.data())),
      codes_(reinterpret_cast<u8*>(centroids_ + kCentroids)),
      head_dim_(args.keys.head_dim),
      capacity_tokens_(args.capacity_tokens) {}

u64 SumCodes::region_bytes(const SelectConfig& /*config*/, const method::KeyDims& /*keys*/,
                           u32 capacity_tokens) {
  return align_up(kCentroids * sizeof(f32) + capacity_tokens, 64);
}

method::TrainNeeds SumCodes::needs(const SelectConfig& /*config*/, const method::KeyDims& keys,
                                   u32 capacity_tokens) {
  return {.sample_rows_max = kSampleRows,
          .scratch_bytes = (u64{keys.head_dim} + kSampleRows) * sizeof(f32),
          .saved_bytes = kCentroids * sizeof(f32) + capacity_tokens};
}

void SumCodes::truncate(u32 middle_end) {
  if (n_trained_ > 0) n_rows_ = std::min(n_rows_, middle_end - slot_begin_);
}

void SumCodes::copy_from(const Reader& source) {
  const auto& other = static_cast<const SumCodes&>(source);
  slot_begin_ = other.slot_begin_;
  n_rows_ = other.n_rows_;
  n_trained_ = other.n_trained_;
  std::copy_n(other.centroids_, kCentroids, centroids_);
  std::copy_n(other.codes_, n_rows_, codes_);
}

void SumCodes::take_in(const kernels::CpuTable& table, const method::KeyPages& keys, u32 slot_end,
                       std::span<std::byte> scratch) {
  code(table, keys, slot_begin_ + n_rows_, slot_end, reinterpret_cast<f32*>(scratch.data()));
  n_rows_ = slot_end - slot_begin_;
}

u32 SumCodes::choose(const method::SelectionArgs& args, const method::KeyPages& /*keys*/) const {
  const u32 n = args.ranges.n_middle();
  TARN_ASSERT(slot_begin_ == args.ranges.middle_begin && n_rows_ == n);
  const method::SelectionScratch scratch = method::carve_selection(args);
  for (u32 h = 0; h < args.query.n_heads; ++h) {
    const f32 sum = sum_of(args.query.q + u64{h} * head_dim_, head_dim_) * args.query.scale;
    f32* const scores = scratch.scores + u64{h} * n;
    for (u32 i = 0; i < n; ++i) scores[i] = sum * centroids_[codes_[i]];
  }
  return method::choose_best(args, scratch, method::rank_of(args, scratch, n));
}

void SumCodes::begin_training(u32 slot_begin, u32 n_rows) {
  forget();
  slot_begin_ = slot_begin;
  n_training_ = n_rows;
}

void SumCodes::train(const method::TrainUnit& unit) {
  f32* const row = reinterpret_cast<f32*>(unit.scratch.data());
  if (unit.what == method::TrainUnit::Keys::rows) {
    return code(unit.table, unit.keys, unit.begin, unit.end, row);
  }
  const std::span<f32> sums(row + head_dim_, unit.end - unit.begin);
  for (u32 i = 0; i < sums.size(); ++i) {
    unit.keys.load(unit.table, unit.begin + i, 1, row);
    sums[i] = sum_of(row, head_dim_);
  }
  std::ranges::sort(sums);
  for (u32 c = 0; c < kCentroids; ++c) {
    centroids_[c] = sums[(2 * u64{c} + 1) * sums.size() / (u64{2} * kCentroids)];
  }
}

void SumCodes::code(const kernels::CpuTable& table, const method::KeyPages& keys, u32 begin,
                    u32 end, f32* row) {
  TARN_ASSERT(begin >= slot_begin_ && end - slot_begin_ <= capacity_tokens_);
  for (u32 slot = begin; slot < end; ++slot) {
    keys.load(table, slot, 1, row);
    const f32 sum = sum_of(row, head_dim_);
    const auto is_nearer = [&](f32 a, f32 b) { return std::abs(a - sum) < std::abs(b - sum); };
    const f32* const nearest = std::min_element(centroids_, centroids_ + kCentroids, is_nearer);
    codes_[slot - slot_begin_] = static_cast<u8>(nearest - centroids_);
  }
}

u64 SumCodes::saved_bytes() const { return kCentroids * sizeof(f32) + n_trained_; }

// The region begins with these bytes.
void SumCodes::save(std::span<std::byte> out) const {
  std::memcpy(out.data(), centroids_, saved_bytes());
}

bool SumCodes::load(u32 slot_begin, u32 n_rows, std::span<const std::byte> bytes) {
  begin_training(slot_begin, n_rows);
  constexpr u64 kHead = kCentroids * sizeof(f32);
  if (n_rows > capacity_tokens_ || bytes.size() < kHead + n_rows) return false;
  const auto is_code = [](std::byte code) { return static_cast<u32>(code) < kCentroids; };
  if (!std::ranges::all_of(bytes.subspan(kHead, n_rows), is_code)) return false;
  std::memcpy(centroids_, bytes.data(), kHead + n_rows);
  end_training();
  return true;
}

}  // namespace tarn::lab
