#include "runtime/store/write_budget.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::store {
namespace {

constexpr u64 kSpanNs = u64{24} * 3600 * 1'000'000'000;

}  // namespace

void WriteBudget::init(Clock& clock, u64 bytes_per_day) {
  clock_ = &clock;
  bytes_per_day_ = level_bytes_ = bytes_per_day;
  is_filling_ = false;
}

void WriteBudget::start(u64 level_bytes) {
  level_bytes_ = std::min(bytes_per_day_, level_bytes);
  at_ns_ = clock_->now_ns();
  is_filling_ = bytes_per_day_ > 0;
}

// Bytes that the bucket gained since at_ns_.
u64 WriteBudget::filled_bytes() const {
  if (!is_filling_) return 0;
  const u64 passed_ns = std::min(clock_->now_ns() - at_ns_, kSpanNs);
  return static_cast<u64>(static_cast<f64>(bytes_per_day_) * static_cast<f64>(passed_ns) /
                          f64{kSpanNs});
}

u64 WriteBudget::left_bytes() const {
  return std::min(bytes_per_day_, level_bytes_ + filled_bytes());
}

void WriteBudget::refill() {
  const u64 filled = filled_bytes();
  if (filled == 0) return;  // less than a byte so far: the time is kept
  at_ns_ = clock_->now_ns();
  level_bytes_ = std::min(bytes_per_day_, level_bytes_ + filled);
}

void WriteBudget::spend(u64 n_bytes) {
  TARN_ASSERT(has(n_bytes));
  if (bytes_per_day_ > 0) level_bytes_ -= n_bytes;
}

u64 WriteBudget::spend_up_to(u64 n_bytes) {
  const u64 spent_bytes = std::min(level_bytes_, n_bytes);
  level_bytes_ -= spent_bytes;
  return spent_bytes;
}

}  // namespace tarn::store
