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
  first_tick_ += 2 * cycle_groups_ + 1;  // of a plan without uses, too
  visits_ = storage_.first(0);
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

u32 UsePlan::ahead_group() const {
  const Visit& visit = visits_[ahead_.visit];
  const u32 group = visit.group(ahead_.use);
  if (group >= visit.sequence->n_groups()) return EvictionQueue::kNone;
  return visit.sequence->group(ahead_.layer, group).idx;
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
