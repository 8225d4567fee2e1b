#include "runtime/engine/session.h"

#include <algorithm>

namespace tarn::engine {

u32 Session::n_ready_rows(const GenerationScratch& scratch) const {
  if (state == SessionState::computing) return n_computable();
  if (state != SessionState::generating) return 0;
  return generation.has_room(scratch) ? n_pending() : 0;
}

bool Session::can_cancel(const GenerationScratch& scratch) const {
  if (state == SessionState::computing) return true;
  return state == SessionState::generating && generation.has_room(scratch);
}

void Session::end_cancelled(const GenerationScratch& scratch) {
  if (generation.n_generated == 0 || state == SessionState::computing) {
    n_ids = std::max(sequence.n_slots(), n_settled);
    turns.truncate(n_ids);
  }
  if (state == SessionState::generating) finish(Finish::cancelled, Status::ok, scratch);
  state = SessionState::idle;
  cancel.store(false);
}

void Session::finish(Finish reason, Status status, const GenerationScratch& scratch) {
  generation.finish(reason, status, scratch);
  state = SessionState::idle;
  saved.stop(/*has_answer=*/generation.n_generated > 0);
}

void Session::end_input() {
  if (state != SessionState::computing || n_computable() > 0) return;
  state = SessionState::idle;
  if (!saved.restored || saved.restored->is_cut_off) saved.stopped_at = reuse::StoppedAt::input;
}

}  // namespace tarn::engine
