#include "runtime/kv/group_pool.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"

namespace tarn::kv {

void GroupPool::init(Carver& carver, const GroupShape& shape, u32 groups_max) {
  TARN_ASSERT(shape.payload_bytes() > 0);
  *this = GroupPool();
  shape_ = shape;
  groups_ = carver.take<Group>("groups", groups_max);
  free_.init(carver, groups_max);
  std::ranges::fill(groups_, Group{});
}

void GroupPool::lie_in(std::span<std::byte> region) {
  TARN_ASSERT(region.size() >= groups_max() * shape_.group_bytes());
  region_ = reinterpret_cast<u8*>(region.data());
}

GroupPool::Group& GroupPool::of_generation(GroupRef ref) const {
  TARN_ASSERT(ref.idx < groups_.size());
  TARN_ASSERT(ref.generation == groups_[ref.idx].generation);
  return groups_[ref.idx];
}

GroupPool::Group& GroupPool::current(GroupRef ref) const {
  Group& group = of_generation(ref);
  TARN_ASSERT(group.references > 0);
  return group;
}

std::optional<GroupRef> GroupPool::acquire() {
  while (free_.n_free() == 0) {
    if (pages_ == nullptr || !pages_->free_one()) return std::nullopt;
  }
  const u32 idx = free_.take();
  TARN_ASSERT(groups_[idx].references == 0);
  groups_[idx].references = 1;
  if (memory_ != nullptr) memory_->on_acquire(idx);
  return GroupRef{.idx = idx, .generation = groups_[idx].generation};
}

void GroupPool::seal(GroupRef ref) {
  Group& group = current(ref);
  TARN_ASSERT(!group.is_sealed);
  group.is_sealed = true;
  if (memory_ != nullptr) memory_->on_seal(ref.idx);
}

GroupRef GroupPool::reopen(GroupRef ref) {
  Group& group = current(ref);
  TARN_ASSERT(group.is_sealed);
  TARN_ASSERT(group.references == 1);
  if (group.page != kNoPage) pages_->on_reopen(group.page);
  group.is_sealed = false;
  if (memory_ != nullptr) memory_->on_reopen(ref.idx);
  return GroupRef{.idx = ref.idx, .generation = ++group.generation};
}

void GroupPool::add_reference(GroupRef ref) {
  Group& group = of_generation(ref);
  TARN_ASSERT(group.is_sealed);
  TARN_ASSERT(group.references < ~u32{0});
  if (group.references++ > 0) return;
  --n_idle_;
  pages_->on_held(group.page);
}

void GroupPool::release(GroupRef ref) {
  Group& group = current(ref);
  if (--group.references > 0) return;
  if (group.page != kNoPage && pages_->on_released(group.page)) {
    ++n_idle_;
    return;
  }
  give_back(ref.idx);
}

void GroupPool::free_idle(GroupRef ref) {
  const Group& group = of_generation(ref);
  TARN_ASSERT(group.is_sealed && group.references == 0);
  --n_idle_;
  give_back(ref.idx);
}

void GroupPool::give_back(u32 idx) {
  Group& group = groups_[idx];
  if (memory_ != nullptr) memory_->on_release(idx);
  group = {.generation = group.generation + 1};
  free_.put(idx);
}

void GroupPool::set_page(GroupRef ref, u32 page, u32 layer) {
  Group& group = current(ref);
  TARN_ASSERT(group.is_sealed && (group.page == kNoPage || page == kNoPage));
  group.page = page;
  group.layer = static_cast<u16>(layer);
}

u8* GroupPool::address(GroupRef group) const {
  (void)current(group);
  return region_ != nullptr ? region_ + group.idx * shape_.group_bytes()
                            : memory_->group(group.idx);
}

const u8* GroupPool::page(GroupRef group, u32 kv_head) const {
  TARN_ASSERT(kv_head < shape_.n_kv_heads);
  return address(group) + kv_head * shape_.page_bytes();
}

u8* GroupPool::page_for_write(GroupRef group, u32 kv_head) {
  TARN_ASSERT(kv_head < shape_.n_kv_heads);
  TARN_ASSERT(!current(group).is_sealed);
  return address(group) + kv_head * shape_.page_bytes();
}

void GroupPool::copy_slots(GroupRef source, GroupRef target, u32 n_slots) {
  TARN_ASSERT(n_slots <= shape_.page_tokens);
  const u64 bytes = u64{n_slots} * 2 * shape_.vector_bytes;
  for (u32 head = 0; head < shape_.n_kv_heads; ++head) {
    u8* to = page_for_write(target, head);
    const u8* from = page(source, head);
    if (memory_ != nullptr) {
      memory_->copy(to, from, bytes);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
}

void GroupPool::check_invariants() const {
  u32 n_used = 0, n_idle = 0;
  for (const Group& group : groups_) {
    n_used += group.references > 0;
    n_idle += group.is_sealed && group.references == 0;
    TARN_ASSERT(group.is_sealed || (group.references <= 1 && group.page == kNoPage));
    TARN_ASSERT(group.references > 0 || !group.is_sealed || group.page != kNoPage);
  }
  TARN_ASSERT(n_idle == n_idle_ && n_used + n_idle + free_.n_free() == groups_.size());
}

}  // namespace tarn::kv
