// Work beside the rows of a step: an index that a row must have before it runs, and what no row
// waits for (clustering, the disk, checkpoints).
//
//   thread   the engine's
#pragma once

#include "runtime/engine/current_step.h"
#include "runtime/engine/sessions/session_pool.h"

namespace tarn::engine {

class Jobs {
 public:
  Jobs(const Opened& opened, SessionKv& kv, SessionPool& sessions, CurrentStep& current)
      : o_(opened), kv_(kv), sessions_(sessions), current_(current) {}
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  // Does a layer of the clustering that each row must have done before it. A row that wants more
  // waits for the next step; so does one whose session is cancelled meanwhile.
  void run_due(std::span<step::Ready> ready);
  // Does what no row waits for, and all the more where the step has no rows.
  void run_idle();

 private:
  const Opened& o_;
  SessionKv& kv_;
  SessionPool& sessions_;
  CurrentStep& current_;
};

}  // namespace tarn::engine
