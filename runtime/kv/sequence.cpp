#include "runtime/kv/sequence.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

u32 groups_of(u32 n_slots, u32 page_tokens) {
  return static_cast<u32>(ceil_div(n_slots, page_tokens));
}

}  // namespace

u64 Sequence::n_entries(u32 n_cache_layers, u32 slots_max, u32 page_tokens) {
  return u64{n_cache_layers} * groups_of(slots_max, page_tokens);
}

void Sequence::init(GroupPool* pool, u32 n_cache_layers, u32 slots_max,
                    std::span<GroupRef> tables) {
  TARN_ASSERT(pool != nullptr && n_cache_layers > 0);
  *this = Sequence();
  pool_ = pool;
  n_cache_layers_ = n_cache_layers;
  groups_per_layer_max_ = groups_of(slots_max, pool->shape().page_tokens);
  slots_max_ = slots_max;
  TARN_ASSERT(tables.size() == n_entries(n_cache_layers, slots_max, pool->shape().page_tokens));
  tables_ = tables;
}

u32 Sequence::n_groups() const { return groups_of(n_reserved_, pool_->shape().page_tokens); }

GroupRef& Sequence::entry(u32 cache_layer, u32 group_idx) {
  return tables_[u64{cache_layer} * groups_per_layer_max_ + group_idx];
}

GroupRef Sequence::group(u32 cache_layer, u32 group_idx) const {
  TARN_ASSERT(cache_layer < n_cache_layers_);
  TARN_ASSERT(group_idx < n_groups());
  return tables_[u64{cache_layer} * groups_per_layer_max_ + group_idx];
}

bool Sequence::reserve(u32 n) {
  if (n > slots_max_ - n_reserved_) return false;
  const u32 n_before = n_groups();
  const u32 n_after = groups_of(n_reserved_ + n, pool_->shape().page_tokens);
  if (u64{n_after - n_before} * n_cache_layers_ > pool_->groups_free()) return false;
  changed_from_ = std::min(changed_from_, n_before);
  n_reserved_ += n;
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    for (u32 group_idx = n_before; group_idx < n_after; ++group_idx) {
      const auto group = pool_->acquire();
      TARN_ASSERT(group.has_value());
      entry(layer, group_idx) = *group;
    }
  }
  return true;
}

u8* Sequence::slot_for_write(u32 cache_layer, u32 kv_head, u32 slot) {
  TARN_ASSERT(slot >= n_slots_);
  TARN_ASSERT(slot < n_reserved_);
  const GroupShape& shape = pool_->shape();
  u8* page = pool_->page_for_write(group(cache_layer, slot / shape.page_tokens), kv_head);
  return page + u64{slot % shape.page_tokens} * 2 * shape.vector_bytes;
}

void Sequence::commit(u32 n) {
  TARN_ASSERT(n <= n_reserved_ - n_slots_);
  const u32 page_tokens = pool_->shape().page_tokens;
  const u32 n_full_before = n_slots_ / page_tokens;
  n_slots_ += n;
  const u32 n_full_after = n_slots_ / page_tokens;
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    for (u32 group_idx = n_full_before; group_idx < n_full_after; ++group_idx) {
      pool_->seal(group(layer, group_idx));
    }
  }
}

void Sequence::drop_groups_from(u32 group_idx) {
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {  // a page before what it follows
    for (u32 idx = n_groups(); idx-- > group_idx;) pool_->release(group(layer, idx));
  }
}

void Sequence::abandon() {
  drop_groups_from(groups_of(n_slots_, pool_->shape().page_tokens));
  n_reserved_ = n_slots_;
}

bool Sequence::has_room(u32 n_kept, u32 n_slots) const {
  const u32 page_tokens = pool_->shape().page_tokens;
  const u32 n_kept_groups = groups_of(n_kept, page_tokens);
  const bool reopens = n_kept % page_tokens != 0 && pool_->is_sealed(group(0, n_kept_groups - 1));
  u64 n_copies = 0, n_freed = 0;  // what others share is copied, and frees nothing
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    n_copies += u64{reopens && pool_->references(group(layer, n_kept_groups - 1)) > 1};
    for (u32 idx = n_kept_groups; idx < n_groups(); ++idx) {
      n_freed += u64{pool_->references(group(layer, idx)) == 1};
    }
  }
  const u64 n_more = u64{groups_of(n_slots, page_tokens) - n_kept_groups} * n_cache_layers_;
  return n_copies + n_more <= pool_->groups_free() + n_freed;
}

bool Sequence::truncate(u32 n) {
  TARN_ASSERT(n <= n_slots_);
  const u32 page_tokens = pool_->shape().page_tokens;
  const u32 n_kept = groups_of(n, page_tokens);
  const u32 tail_slots = n % page_tokens;
  const bool reopens = tail_slots != 0 && pool_->is_sealed(group(0, n_kept - 1));

  if (!has_room(n, n)) return false;
  drop_groups_from(n_kept);
  n_slots_ = n;
  n_reserved_ = n;
  if (reopens) changed_from_ = std::min(changed_from_, n_kept - 1);
  for (u32 layer = 0; reopens && layer < n_cache_layers_; ++layer) {
    GroupRef& tail = entry(layer, n_kept - 1);
    if (pool_->references(tail) == 1) {
      tail = pool_->reopen(tail);
      continue;
    }
    const auto copy = pool_->acquire();
    TARN_ASSERT(copy.has_value());
    pool_->copy_slots(tail, *copy, tail_slots);
    pool_->release(tail);
    tail = *copy;
  }
  return true;
}

void Sequence::replace(u32 page, std::span<const GroupRef> groups) {
  TARN_ASSERT(groups.size() == n_cache_layers_ && page < groups_per_layer_max_);
  const bool has_own = page < n_groups();
  changed_from_ = std::min(changed_from_, page);
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    pool_->add_reference(groups[layer]);
    if (has_own) pool_->release(entry(layer, page));
    entry(layer, page) = groups[layer];
  }
}

void Sequence::adopt(std::span<const GroupRef> groups) {
  const u32 page_tokens = pool_->shape().page_tokens;
  TARN_ASSERT(n_slots_ % page_tokens == 0 && n_slots_ + page_tokens <= slots_max_);
  replace(n_slots_ / page_tokens, groups);
  n_slots_ += page_tokens;
  n_reserved_ = std::max(n_reserved_, n_slots_);
}

bool Sequence::fork_from(const Sequence& source) {
  TARN_ASSERT(n_reserved_ == 0);
  TARN_ASSERT(pool_ == source.pool_);
  TARN_ASSERT(n_cache_layers_ == source.n_cache_layers_);
  if (source.n_slots_ > slots_max_) return false;
  const u32 page_tokens = pool_->shape().page_tokens;
  const u32 n_full = source.n_slots_ / page_tokens;
  const u32 tail_slots = source.n_slots_ % page_tokens;
  if (tail_slots != 0 && n_cache_layers_ > pool_->groups_free()) return false;

  changed_from_ = 0;
  n_slots_ = source.n_slots_;
  n_reserved_ = n_slots_;
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    for (u32 group_idx = 0; group_idx < n_full; ++group_idx) {
      const GroupRef shared = source.group(layer, group_idx);
      pool_->add_reference(shared);
      entry(layer, group_idx) = shared;
    }
    if (tail_slots == 0) continue;
    const auto tail = pool_->acquire();
    TARN_ASSERT(tail.has_value());
    pool_->copy_slots(source.group(layer, n_full), *tail, tail_slots);
    entry(layer, n_full) = *tail;
  }
  return true;
}

void Sequence::clear() {
  drop_groups_from(0);
  n_slots_ = 0;
  n_reserved_ = 0;
}

u64 Sequence::group_address(u32 cache_layer, u32 group_idx) const {
  return reinterpret_cast<std::uintptr_t>(pool_->address(group(cache_layer, group_idx)));
}

u32 Sequence::take_changed_groups() {
  const u32 first = std::min(changed_from_, n_groups());
  changed_from_ = n_groups();
  return first;
}

void Sequence::pages(u32 cache_layer, u32 kv_head, u32 begin, u32 end,
                     std::span<const u8*> out) const {
  TARN_ASSERT(begin <= end && out.size() >= end - begin);
  for (u32 group_idx = begin; group_idx < end; ++group_idx) {
    out[group_idx - begin] = pool_->page(group(cache_layer, group_idx), kv_head);
  }
}

}  // namespace tarn::kv
