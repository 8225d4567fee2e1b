#include "runtime/kv/use_plan.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {

void UsePlan::init(std::span<Visit> visits, u32 n_cache_layers, EvictionQueue* queue) {
  *this = UsePlan();
  n_cache_layers_ = n_cache_layers;
  queue_ = queue;
  storage_ = visits;
}

// Reads have worked ahead into the cycle after the last one: the new ticks are behind its ticks.
void UsePlan::begin() {
  first_tick_ += 2 * cycle_groups_ + n_later_groups_ + 1;  // of a plan without uses, too
  visits_ = later_ = storage_.first(0);
  n_later_groups_ = 0;
}

void UsePlan::add(const Visit& visit) {
  TARN_ASSERT(visits_.size() < storage_.size());
  TARN_ASSERT(visit.n_groups <= visit.sequence->n_groups());
  TARN_ASSERT(visit.offloaded_begin <= visit.offloaded_end &&
              visit.offloaded_end <= visit.n_groups);
  storage_[visits_.size()] = visit;
  visits_ = storage_.first(visits_.size() + 1);
}

void UsePlan::end() {
  u64 layer_groups = 0;
  for (const Visit& visit : visits_) layer_groups += visit.n_uses();
  cycle_groups_ = layer_groups * n_cache_layers_;
  used_tick_ = first_tick_;
  ahead_ = {.tick = first_tick_};
  at_end_ = cycle_groups_ == 0;
  queue_->begin_cycle(first_tick_);
  u64 tick = first_tick_ + cycle_groups_;
  for (u32 layer = n_cache_layers_; layer-- > 0;) {
    for (u64 i = visits_.size(); i-- > 0;) {
      const Visit& visit = visits_[i];
      for (u32 use = visit.n_uses(); use-- > 0;) {
        queue_->expect(visit.sequence->group(layer, visit.group(use)).idx, --tick);
      }
    }
  }
  TARN_ASSERT(tick == first_tick_);
  if (!at_end_ && visits_[0].n_uses() == 0) advance();
}

void UsePlan::add_later(const Visit& visit) {
  TARN_ASSERT(visits_.size() + later_.size() < storage_.size());
  TARN_ASSERT(visit.n_groups <= visit.sequence->n_groups());
  const u64 first_tick = first_tick_ + 2 * cycle_groups_;
  if (visit.n_groups == 0) return;
  storage_[visits_.size() + later_.size()] = visit;
  later_ = storage_.subspan(visits_.size(), later_.size() + 1);
  if (later_.size() == 1) later_at_ = {.tick = first_tick};
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    for (u32 group = 0; group < visit.n_groups; ++group) {
      const u64 tick = first_tick + n_later_groups_++;
      queue_->expect_later(visit.sequence->group(layer, group).idx, tick);
    }
  }
}

void UsePlan::advance_later() {
  ++later_at_.tick;
  if (++later_at_.use < later_[later_at_.visit].n_groups) return;
  later_at_.use = 0;
  if (++later_at_.layer < n_cache_layers_) return;
  later_at_.layer = 0;
  ++later_at_.visit;
}

UsePlan::Cursor UsePlan::find(const Sequence& sequence, u32 cache_layer, u32 group) const {
  u64 n_before = u64{cache_layer} * (cycle_groups_ / n_cache_layers_);
  u32 visit = 0;
  for (; visit < visits_.size() && visits_[visit].sequence != &sequence; ++visit) {
    n_before += visits_[visit].n_uses();
  }
  if (visit == visits_.size()) return {};
  const Visit& of = visits_[visit];
  if (group >= of.n_groups || of.is_offloaded(group)) return {};
  const u32 use = group < of.offloaded_begin ? group : group - (of.n_offloaded());
  return {cache_layer, visit, use, first_tick_ + n_before + use};
}

u64 UsePlan::note_use(const Sequence& sequence, u32 cache_layer, u32 group) {
  const Cursor at = find(sequence, cache_layer, group);
  if (at.tick == 0) return 0;
  used_tick_ = std::max(used_tick_, at.tick);
  if (ahead_.tick < at.tick) ahead_ = at;
  return at.tick;
}

// Returns the group of the use, or none where the sequence was cut since.
u32 UsePlan::group_of(const Visit& visit, const Cursor& cursor) {
  const u32 group = visit.group(cursor.use);
  if (group >= visit.sequence->n_groups()) return EvictionQueue::kNone;
  return visit.sequence->group(cursor.layer, group).idx;
}

bool UsePlan::advance(Cursor& cursor) const {
  if (cursor.use < visits_[cursor.visit].n_uses()) {
    ++cursor.use;
    ++cursor.tick;
  }
  while (cursor.use >= visits_[cursor.visit].n_uses()) {
    cursor.use = 0;
    if (++cursor.visit < visits_.size()) continue;
    cursor.visit = 0;
    if (++cursor.layer == n_cache_layers_) cursor.layer = 0;
  }
  return cursor.tick < first_tick_ + 2 * cycle_groups_;
}

}  // namespace tarn::kv
