// How a cancel ends what runs: between two steps, or within one.
//
// Within a step, which takes seconds for others' prompts, the end is told at once, and the session
// is idle from then on. Its rows are computed with the others', and not committed; their slots are
// given back when the layers are done. A step without a session that is not idle stops half way. A
// layer of an index, made before the layers, is made to its end.
#include <algorithm>

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

// Of tokens that were taken back. A session whose KV was lost may have fewer.
void Engine::give_back_places() {
  for (Session& s : sessions_) {
    if (s.state != SessionState::idle || s.sequence.n_reserved() <= s.n_ids) continue;
    s.sequence.abandon();
    archive_.drop(s.saved);
    const bool reserved = s.sequence.reserve(s.n_pending());
    TARN_ASSERT(reserved);  // what abandon() gave back a moment ago
  }
}

bool Engine::end_all_cancelled() {
  bool has_ended = false;
  for (Session& s : sessions_) {
    if (!s.cancel.load(std::memory_order_relaxed) || !can_cancel(s)) continue;
    end_cancelled(s);
    has_ended = true;
  }
  return has_ended;
}

// The step is wanted while one of its sessions is. A step with a row that selects is a single token
// of its session, and goes on to its end.
bool Engine::tick(step::Pause pause) {
  if (pause == step::Pause::between_ops) kv_.pump(0);
  if (!may_abandon_) return true;
  if (end_all_cancelled() && on_early_end_ != nullptr) on_early_end_(early_end_context_);
  return std::ranges::any_of(executor_.batch().runs, [&](const step::Run& run) {
    return run.selects || session(run.session).state != SessionState::idle;
  });
}

// Runs of sessions that were cancelled meanwhile are not committed.
void Engine::drop_cancelled() {
  for (step::Run& run : executor_.batch().runs) {
    Session& s = session(run.session);
    if (s.state != SessionState::idle) continue;
    if (run.state == step::RunState::failed) {
      (void)lose_kv(s);
      give_up(s, kv_.error());
    }
    run.state = step::RunState::dropped;
  }
  give_back_places();
}

}  // namespace tarn::engine
