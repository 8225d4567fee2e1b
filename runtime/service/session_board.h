// The view of each session without waiting for a step, which may take seconds: how far it
// is, as of the last step or call, and whether it is read.
//
//   thread   any, under the lock of its owner
#pragma once

#include <array>

#include "runtime/engine/engine.h"
#include "runtime/step/reading_time.h"

namespace tarn::service {

struct Progress {
  engine::SessionState state = engine::SessionState::free;
  step::Priority priority = step::Priority::interactive;
  u32 n_ids = 0;
  u32 n_slots = 0;
  engine::LastError last_error{};
  u64 prefill_left_ns = 0;  // an estimate; 0: nothing is read, or nothing known yet
  kv::Reused reused{};
  control::Decision loading{};
  control::ChunkDecision blending{};
};

struct SessionRow {
  Progress progress{};
  bool is_read = false;  // a generation was begun, and its DONE was not read yet
  u32 n_failed = 0;      // submitted calls that failed, and whose reply was not taken
  u32 epoch = 0;         // counts the sessions that were destroyed here
  void* user = nullptr;  // the host's
  bool is_free() const { return progress.state == engine::SessionState::free; }
};

class SessionBoard {
 public:
  void note(std::span<const engine::Session> sessions, u64 now_ns);
  SessionRow& of(engine::SessionIdx idx) { return rows_[idx]; }
  const SessionRow& of(engine::SessionIdx idx) const { return rows_[idx]; }
  // Counts an engine's sessions, free ones too.
  u32 n_sessions() const { return n_sessions_; }

 private:
  u32 n_sessions_ = 0;
  std::array<SessionRow, engine::kSessionsMax> rows_{};
  std::array<step::ReadingClock, engine::kSessionsMax> readings_{};
};

}  // namespace tarn::service
