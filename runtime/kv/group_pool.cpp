#include "runtime/kv/group_pool.h"

#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

constexpr u32 kNone = ~u32{0};
constexpr u64 kBytesPerGroup =
    3 * sizeof(u32) + sizeof(u8);  // generation, references, link, sealed

}  // namespace

u64 GroupPool::region_bytes(const GroupShape& shape, u32 groups_max) {
  return groups_max * shape.group_bytes();
}

u64 GroupPool::bookkeeping_bytes(u32 groups_max) {
  return align_up(u64{groups_max} * kBytesPerGroup, sizeof(u64));
}

void GroupPool::init(const GroupShape& shape, u32 groups_max, std::span<std::byte> region,
                     std::span<std::byte> bookkeeping) {
  TARN_ASSERT(region.size() >= region_bytes(shape, groups_max));
  init_bookkeeping(shape, groups_max, bookkeeping);
  region_ = reinterpret_cast<u8*>(region.data());
  memory_ = nullptr;
}

void GroupPool::init(const GroupShape& shape, u32 groups_max, GroupMemory* memory,
                     std::span<std::byte> bookkeeping) {
  TARN_ASSERT(memory != nullptr);
  init_bookkeeping(shape, groups_max, bookkeeping);
  region_ = nullptr;
  memory_ = memory;
}

void GroupPool::init_bookkeeping(const GroupShape& shape, u32 groups_max,
                                 std::span<std::byte> bookkeeping) {
  TARN_ASSERT(shape.payload_bytes() > 0);
  TARN_ASSERT(groups_max < kNone);
  TARN_ASSERT(bookkeeping.size() >= bookkeeping_bytes(groups_max));
  shape_ = shape;
  groups_max_ = groups_max;

  Bump bump(bookkeeping);
  const auto generations = bump.alloc<u32>(groups_max);
  const auto references = bump.alloc<u32>(groups_max);
  const auto next_free = bump.alloc<u32>(groups_max);
  const auto sealed = bump.alloc<u8>(groups_max);
  TARN_ASSERT(generations && references && next_free && sealed);
  generations_ = generations->data();
  references_ = references->data();
  next_free_ = next_free->data();
  sealed_ = sealed->data();
  for (u32 idx = 0; idx < groups_max; ++idx) {
    generations_[idx] = 0;
    references_[idx] = 0;
    next_free_[idx] = idx + 1 < groups_max ? idx + 1 : kNone;
    sealed_[idx] = 0;
  }
  free_head_ = groups_max > 0 ? 0 : kNone;
  groups_free_ = groups_max;
}

void GroupPool::assert_current(GroupRef group) const {
  TARN_ASSERT(group.idx < groups_max_);
  TARN_ASSERT(group.generation == generations_[group.idx]);
  TARN_ASSERT(references_[group.idx] > 0);
}

std::optional<GroupRef> GroupPool::acquire() {
  if (free_head_ == kNone) return std::nullopt;
  const u32 idx = free_head_;
  TARN_ASSERT(references_[idx] == 0);
  free_head_ = next_free_[idx];
  --groups_free_;
  references_[idx] = 1;
  if (memory_ != nullptr) memory_->on_acquire(idx);
  return GroupRef{.idx = idx, .generation = generations_[idx]};
}

void GroupPool::seal(GroupRef group) {
  assert_current(group);
  TARN_ASSERT(sealed_[group.idx] == 0);
  sealed_[group.idx] = 1;
  if (memory_ != nullptr) memory_->on_seal(group.idx);
}

GroupRef GroupPool::reopen(GroupRef group) {
  assert_current(group);
  TARN_ASSERT(sealed_[group.idx] == 1);
  TARN_ASSERT(references_[group.idx] == 1);
  sealed_[group.idx] = 0;
  if (memory_ != nullptr) memory_->on_reopen(group.idx);
  return GroupRef{.idx = group.idx, .generation = ++generations_[group.idx]};
}

void GroupPool::add_reference(GroupRef group) {
  assert_current(group);
  TARN_ASSERT(sealed_[group.idx] == 1);
  TARN_ASSERT(references_[group.idx] < ~u32{0});
  ++references_[group.idx];
}

void GroupPool::release(GroupRef group) {
  assert_current(group);
  if (--references_[group.idx] > 0) return;
  if (memory_ != nullptr) memory_->on_release(group.idx);
  ++generations_[group.idx];
  sealed_[group.idx] = 0;
  next_free_[group.idx] = free_head_;
  free_head_ = group.idx;
  ++groups_free_;
}

bool GroupPool::is_sealed(GroupRef group) const {
  assert_current(group);
  return sealed_[group.idx] == 1;
}

u32 GroupPool::references(GroupRef group) const {
  assert_current(group);
  return references_[group.idx];
}

u8* GroupPool::address(GroupRef group) const {
  assert_current(group);
  return region_ != nullptr ? region_ + group.idx * shape_.group_bytes()
                            : memory_->group(group.idx);
}

const u8* GroupPool::page(GroupRef group, u32 kv_head) const {
  TARN_ASSERT(kv_head < shape_.n_kv_heads);
  return address(group) + kv_head * shape_.page_bytes();
}

u8* GroupPool::page_for_write(GroupRef group, u32 kv_head) {
  TARN_ASSERT(kv_head < shape_.n_kv_heads);
  u8* first_page = address(group);
  TARN_ASSERT(sealed_[group.idx] == 0);
  return first_page + kv_head * shape_.page_bytes();
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
  for (u32 idx = 0; idx < groups_max_; ++idx) {
    TARN_ASSERT(sealed_[idx] <= 1);
    if (references_[idx] == 0) {
      TARN_ASSERT(sealed_[idx] == 0);
    } else {
      ++n_used;
      TARN_ASSERT(sealed_[idx] == 1 || references_[idx] == 1);
    }
  }
  u32 n_free = 0;
  for (u32 idx = free_head_; idx != kNone; idx = next_free_[idx]) {
    TARN_ASSERT(idx < groups_max_);
    TARN_ASSERT(references_[idx] == 0);
    TARN_ASSERT(n_free < groups_max_);  // otherwise the list is a circle
    ++n_free;
  }
  TARN_ASSERT(n_free == groups_free_);
  TARN_ASSERT(n_free + n_used == groups_max_);
}

}  // namespace tarn::kv
