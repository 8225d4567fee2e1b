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

GroupPool::Group& GroupPool::current(GroupRef ref) const {
  TARN_ASSERT(ref.idx < groups_.size());
  TARN_ASSERT(ref.generation == groups_[ref.idx].generation);
  TARN_ASSERT(groups_[ref.idx].references > 0);
  return groups_[ref.idx];
}

std::optional<GroupRef> GroupPool::acquire() {
  if (free_.n_free() == 0) return std::nullopt;
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
  group.is_sealed = false;
  if (memory_ != nullptr) memory_->on_reopen(ref.idx);
  return GroupRef{.idx = ref.idx, .generation = ++group.generation};
}

void GroupPool::add_reference(GroupRef ref) {
  Group& group = current(ref);
  TARN_ASSERT(group.is_sealed);
  TARN_ASSERT(group.references < ~u32{0});
  ++group.references;
}

void GroupPool::release(GroupRef ref) {
  Group& group = current(ref);
  if (--group.references > 0) return;
  if (memory_ != nullptr) memory_->on_release(ref.idx);
  ++group.generation;
  group.is_sealed = false;
  free_.put(ref.idx);
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
  u32 n_used = 0;
  for (const Group& group : groups_) {
    n_used += group.references > 0;
    TARN_ASSERT(group.is_sealed ? group.references > 0 : group.references <= 1);
  }
  TARN_ASSERT(n_used + free_.n_free() == groups_.size());
}

}  // namespace tarn::kv
