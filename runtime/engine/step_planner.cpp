#include "runtime/engine/step_planner.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::engine {

using step::Ready;
using step::RunKind;

namespace {

// Rows of an input go together. A restored session may have generated tokens to compute again. The
// last one goes alone, as it did before, since an index may begin with it. No index had begun
// before the others, or all of their KV would have been saved.
u32 n_rows_at_once(const Session& s) {
  const u32 n_slots = s.sequence.n_slots(), n_fed = s.tokens.turns.n_fed();
  return n_slots < n_fed ? n_fed - n_slots : std::max(s.n_pending() - 1, 1u);
}

}  // namespace

void StepPlanner::init(std::span<Ready> ready, std::span<step::Slice> slices) {
  ready_ = ready;
  schedule_ = {.slices = slices};
}

// Rows up to its next chunks, or of their blend; nullopt: it has come to chunks, and has no blend
// for them.
std::optional<u32> StepPlanner::n_rows_of(Session& s) {
  const u32 n_rows = s.n_ready_rows(o_.scratch), n_slots = s.sequence.n_slots();
  if (n_rows == 0 || s.chunks_ahead().empty()) return n_rows;
  const u32 begin = s.chunks_ahead().front().begin;
  if (n_slots < begin) return std::min(n_rows, begin - n_slots);
  reuse::Blend* const blend = kv_.blends().of(s);
  if (blend == nullptr || !blend->prepare(Blends::target_of(s))) return std::nullopt;
  return std::min(n_rows, blend->n_ready(Blends::target_of(s)));
}

// Returns the ready sessions. A session that has come to chunks without a blend gives its run slot
// back, and asks for another.
std::span<Ready> StepPlanner::ready() {
  u32 n = 0;
  for (Session& s : o_.sessions) {
    if (s.n_ready_rows(o_.scratch) > o_.page_tokens()) {
      kv_.take_prefix(s, s.tokens.n_ids - 1);  // a last row is left
      const bool reserved = kv::KvCache::reserve_slots(s.sequence, s.tokens.n_ids);
      TARN_ASSERT(reserved);  // what the pages took the place of
    }
    const std::optional<u32> n_rows = n_rows_of(s);
    if (!n_rows) {
      s.run.is_admitted = false;
      admission_.ask(s);
    }
    if (n_rows.value_or(0) == 0) continue;
    Ready& ready = ready_[n++];
    ready = {.session = s.idx,
             .n_rows = *n_rows,
             .tenant = s.client.tenant_idx,
             .priority = s.client.priority};
    if (!o_.select.is_full()) ready.n_rows = std::min(*n_rows, n_rows_at_once(s));
    if (s.state != SessionState::generating || s.n_pending() > 1) continue;
    ready.kind = s.generation.n_generated > 0 ? RunKind::decode : RunKind::first;
    ready.is_generated = s.sequence.n_slots() >= s.tokens.turns.n_fed();
  }
  return ready_.first(n);
}

step::StepLimits StepPlanner::limits_of(std::span<const Ready> ready) const {
  const auto n_answers = static_cast<u32>(std::ranges::count_if(ready, [](const Ready& each) {
    return each.kind == RunKind::decode && each.priority == step::Priority::interactive;
  }));
  step::StepLimits limits{.rows_max = o_.plan.rows_max, .prompt_rows_max = o_.plan.rows_max};
  if (n_answers > 0 && o_.plan.token_gap_ns > 0) {
    limits.prompt_rows_max = pace_.prompt_rows(o_.plan.token_gap_ns, n_answers, o_.plan.rows_max);
  }
  return limits;
}

std::span<const step::Slice> StepPlanner::plan(std::span<const Ready> ready) {
  schedule(ready, limits_of(ready), admission_.shares(), &schedule_);
  return schedule_.slices.first(schedule_.n_slices);
}

void StepPlanner::observe(u32 n_decode_rows, u32 n_prefill_rows, u64 took_ns) {
  pace_.observe(n_decode_rows, n_prefill_rows, took_ns);
}

}  // namespace tarn::engine
