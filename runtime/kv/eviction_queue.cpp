#include "runtime/kv/eviction_queue.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {
void EvictionQueue::init(Carver& carver, u32 n_groups) {
  static_assert(sizeof(Node) == 16);
  *this = EvictionQueue();
  nodes_ = carver.take<Node>("queue", n_groups);
  std::ranges::fill(nodes_, Node{});
}

void EvictionQueue::link(u32 group_idx, In in, u32 after) {
  Node& node = nodes_[group_idx];
  List& list = list_of(in);
  TARN_ASSERT(this->in(group_idx) == In::neither);
  node.in = static_cast<u64>(in) & 3;
  node.before = after;
  node.after = after == kNone ? list.head : nodes_[after].after;
  (node.before == kNone ? list.head : nodes_[node.before].after) = group_idx;
  (node.after == kNone ? list.tail : nodes_[node.after].before) = group_idx;
  ++list.n;
}

void EvictionQueue::push_dirty(u32 group_idx) { link(group_idx, In::dirty, dirty_.tail); }

// Puts a group that the cycle does not use before the others of its kind.
void EvictionQueue::push_clean(u32 group_idx, bool soonest) {
  const bool is_idle = nodes_[group_idx].next_use < cycle_begin_;
  const u32 last_expected = first_idle_ == kNone ? clean_.tail : nodes_[first_idle_].before;
  link(group_idx, In::clean, soonest && !is_idle ? kNone : last_expected);
  if (is_idle) first_idle_ = group_idx;
}

void EvictionQueue::remove(u32 group_idx) {
  Node& node = nodes_[group_idx];
  if (in(group_idx) == In::neither) return;
  if (first_idle_ == group_idx) first_idle_ = node.after;
  List& list = list_of(in(group_idx));
  (node.before == kNone ? list.head : nodes_[node.before].after) = node.after;
  (node.after == kNone ? list.tail : nodes_[node.after].before) = node.before;
  --list.n;
  node.before = node.after = kNone;
  node.in = 0;
}

void EvictionQueue::begin_cycle(u64 first_tick) {
  TARN_ASSERT(first_tick > 0);
  cycle_begin_ = first_tick;
  first_idle_ = clean_.head;
}

void EvictionQueue::set_expected(u32 group_idx, u64 tick, bool soonest) {
  TARN_ASSERT(tick >= cycle_begin_);
  const bool is_clean = in(group_idx) == In::clean;
  if (is_clean) remove(group_idx);
  nodes_[group_idx].next_use = tick & kNever;
  if (is_clean) push_clean(group_idx, soonest);
}

void EvictionQueue::expect(u32 group_idx, u64 tick) {
  set_expected(group_idx, tick, /*soonest=*/true);
}

void EvictionQueue::expect_later(u32 group_idx, u64 tick) {
  if (nodes_[group_idx].next_use < cycle_begin_) set_expected(group_idx, tick, /*soonest=*/false);
}

void EvictionQueue::set_next_use(u32 group_idx, u64 tick) {
  TARN_ASSERT(in(group_idx) == In::neither);
  nodes_[group_idx].next_use = tick & kNever;
}

bool EvictionQueue::goes_before(u32 group_idx, u64 tick) const {
  const u64 next_use = nodes_[group_idx].next_use;
  return next_use < cycle_begin_ || next_use > tick;
}

void EvictionQueue::check_invariants() const {
  u32 n_dirty = 0, n_clean = 0;
  for (u32 idx = dirty_.head; idx != kNone; idx = nodes_[idx].after) {
    TARN_ASSERT(n_dirty++ < dirty_.n && in(idx) == In::dirty);
  }
  bool is_idle = false;
  for (u32 idx = clean_.head; idx != kNone; idx = nodes_[idx].after) {
    is_idle = is_idle || idx == first_idle_;
    TARN_ASSERT(n_clean++ < clean_.n && in(idx) == In::clean);
    TARN_ASSERT(is_idle == (nodes_[idx].next_use < cycle_begin_));
  }
  TARN_ASSERT(n_dirty == dirty_.n && n_clean == clean_.n);
}

}  // namespace tarn::kv
