#include "runtime/service/session_board.h"

#include <algorithm>

namespace tarn::service {
namespace {

using engine::Session;

constexpr f64 kLeftMaxS = 1e9;  // what it takes to be told as "for ever", in ns an u64

}  // namespace

void SessionBoard::note(std::span<const Session> sessions, u64 now_ns) {
  n_sessions_ = static_cast<u32>(sessions.size());
  for (engine::SessionIdx idx = 0; idx < sessions.size(); ++idx) {
    const Session& session = sessions[idx];
    const u32 n_slots = session.sequence.n_slots();
    Progress& progress = rows_[idx].progress;
    progress = {.state = session.state,
                .priority = session.client.priority,
                .n_ids = session.tokens.n_ids,
                .n_slots = n_slots,
                .last_error = session.last_error,
                .reused = session.generation.reused,
                .loading = session.load.decision,
                .blending = session.approx.decision};
    // The last token waits for what comes next.
    if (session.is_busy() && n_slots + 1 < session.tokens.n_ids) {
      const f64 left_s =
          std::min(readings_[idx].left_s(now_ns, n_slots, session.tokens.n_ids), kLeftMaxS);
      progress.prefill_left_ns = static_cast<u64>(left_s * 1e9);
    } else {
      readings_[idx].end();
    }
  }
}

}  // namespace tarn::service
