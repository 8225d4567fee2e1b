// How a cancel ends what runs: between two steps, or within one.
//
// Within a step, which takes seconds for others' prompts, the end is told while they go on, and the
// session is idle for whoever asks. Its rows are computed with the others', but count for nothing;
// their places in the KV are given back where the step ends, before any call's turn. A step that is
// nobody's any more stops half way. A layer of an index that is made in front of the layers is made
// to its end; rows that were cancelled there are not in the step.
#include <algorithm>
#include <utility>

#include "platform/base/assert.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {

// Whether a cancel could be carried out now: the end of a generation has to find room.
bool Engine::can_cancel(const Session& s) const {
  if (s.state == SessionState::computing) return true;
  return s.state == SessionState::generating && s.generation.has_room(scratch_);
}

// Of what was fed last, that stays which was computed before this step.
void Engine::end_cancelled(Session& s) {
  if (s.generation.n_generated == 0 || s.state == SessionState::computing) {
    s.n_ids = std::max(s.sequence.n_slots(), s.n_settled);
    s.turns.truncate(s.n_ids);
  }
  if (s.state == SessionState::generating) finish(s, Finish::cancelled, Status::ok);
  s.state = SessionState::idle;
  s.cancel.store(false);
}

// The places of tokens that were taken back.
void Engine::give_back_places(Session& s) {
  if (s.sequence.n_reserved() <= s.n_ids) return;  // fewer: its KV was lost in the step
  s.sequence.abandon();
  drop_save(s);
  const bool reserved = s.sequence.reserve(s.n_pending());
  TARN_ASSERT(reserved);  // what abandon() gave back a moment ago
}

void Engine::handle_cancels() {
  for (Session& s : sessions_) {
    if (!s.cancel.load() || !can_cancel(s)) continue;
    end_cancelled(s);
    give_back_places(s);
  }
}

// What runs is wanted while one of its sessions is. A step with a row that selects is a single
// token of its session, and goes on to its end.
bool Engine::tick(step::Pause pause) {
  if (pause == step::Pause::between_ops) kv_.pump(0);
  if (!may_abandon_) return true;
  bool has_told = false;
  for (Session& s : sessions_) {
    const bool is_asked = !s.is_dropped && s.cancel.load(std::memory_order_relaxed);
    if (!is_asked || !can_cancel(s)) continue;
    end_cancelled(s);
    s.is_dropped = has_told = true;
    for (step::Run& run : executor_.batch().runs) {
      const bool is_its = run.session == idx_of(s) && run.state == step::RunState::runs;
      if (is_its) run.state = step::RunState::dropped;
    }
  }
  if (has_told && on_early_end_ != nullptr) on_early_end_(early_end_context_);
  return std::ranges::any_of(executor_.batch().runs, [&](const step::Run& run) {
    return run.selects || !session(run.session).is_dropped;
  });
}

// The step is over for those whose end was told within it.
void Engine::settle_dropped() {
  for (Session& s : sessions_) {
    if (!std::exchange(s.is_dropped, false)) continue;
    if (kv_failed(s)) {
      (void)lose_kv(s);
      give_up(s, kv_.error());
    }
    give_back_places(s);
  }
}

}  // namespace tarn::engine
