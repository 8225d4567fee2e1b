#include "runtime/method/read/quest_index.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::method {

u64 QuestIndex::region_bytes(u32 head_dim, u32 capacity_tokens) {
  const u64 n_pages = ceil_div(capacity_tokens, kPageTokens);
  return n_pages * 2 * head_dim * sizeof(f32);
}

void QuestIndex::init(u32 head_dim, u32 capacity_tokens, std::span<std::byte> region) {
  TARN_ASSERT(region.size() >= region_bytes(head_dim, capacity_tokens));
  ends_ = reinterpret_cast<f32*>(region.data());
  head_dim_ = head_dim;
  capacity_tokens_ = capacity_tokens;
  n_slots_ = 0;
}

void QuestIndex::append(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
                        std::span<f32> row) {
  TARN_ASSERT(slot_end <= capacity_tokens_);
  TARN_ASSERT(keys.head_dim == head_dim_ && row.size() >= head_dim_);
  for (; n_slots_ < slot_end; ++n_slots_) {
    keys.load(table, n_slots_, 1, row.data());
    f32* min = ends_ + u64{n_slots_ / kPageTokens} * 2 * head_dim_;
    f32* max = min + head_dim_;
    const bool is_first = n_slots_ % kPageTokens == 0;
    for (u32 i = 0; i < head_dim_; ++i) {
      min[i] = is_first ? row[i] : std::min(min[i], row[i]);
      max[i] = is_first ? row[i] : std::max(max[i], row[i]);
    }
  }
}

void QuestIndex::truncate(u32 n_slots) {
  if (n_slots < n_slots_) n_slots_ = n_slots / kPageTokens * kPageTokens;
}

void QuestIndex::copy_from(const QuestIndex& source) {
  TARN_ASSERT(source.head_dim_ == head_dim_ && source.capacity_tokens_ == capacity_tokens_);
  n_slots_ = source.n_slots_;
  const u64 n_pages = ceil_div(n_slots_, kPageTokens);
  std::copy_n(source.ends_, n_pages * 2 * head_dim_, ends_);
}

f32 QuestIndex::bound(u32 page, const f32* q) const {
  const f32* min = ends_ + u64{page} * 2 * head_dim_;
  const f32* max = min + head_dim_;
  f32 sum = 0.0f;
  for (u32 i = 0; i < head_dim_; ++i) sum += std::max(q[i] * min[i], q[i] * max[i]);
  return sum;
}

}  // namespace tarn::method
