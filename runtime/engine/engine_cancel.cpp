// How a cancel ends what runs.
#include <algorithm>

#include "platform/base/assert.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {

// Whether a cancel could be carried out now: the end of a generation has to find room.
bool Engine::can_cancel(const Session& s) const {
  if (s.state == SessionState::computing) return true;
  return s.state == SessionState::generating && s.events.has_room(2 * shown_.size());
}

void Engine::handle_cancels() {
  for (Session& s : sessions_) {
    if (!s.cancel.load() || !can_cancel(s)) continue;
    if (s.n_generated == 0 || s.state == SessionState::computing) {  // what is left of a prefill
      s.sequence.abandon();
      kv_stream_.sessions().drop(s.sequence);
      s.n_ids = std::max(s.sequence.n_slots(), s.n_settled);
      s.turns.truncate(s.n_ids);
      const bool reserved = s.sequence.reserve(s.n_pending());
      TARN_ASSERT(reserved);  // what abandon() gave back a moment ago
    }
    if (s.state == SessionState::generating) finish(s, Finish::cancelled, Status::ok);
    if (s.state == SessionState::computing) s.state = SessionState::idle;
    s.cancel.store(false);
  }
}

// What runs is wanted while one of its sessions is. A row that selects has told the index so
// already: its step is a single token, and goes on to its end.
bool Engine::is_wanted() {
  if (!may_abandon_) return true;
  return std::any_of(step_state_.runs.begin(), step_state_.runs.end(), [this](const RowRun& run) {
    const Session& s = session(run.owner);
    return run.selects || !s.cancel.load(std::memory_order_relaxed) || !can_cancel(s);
  });
}

}  // namespace tarn::engine
