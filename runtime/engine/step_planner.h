// Which rows make the next step: what each session could give, and the schedule of it.
//
//   memory   the engine's regions, lent from open() to close()
//   thread   the engine's
#pragma once

#include <optional>
#include <span>

#include "runtime/engine/sessions/admission.h"
#include "runtime/step/pace.h"
#include "runtime/step/schedule.h"

namespace tarn::engine {

class StepPlanner {
 public:
  StepPlanner(const Opened& opened, SessionKv& kv, Admission& admission)
      : o_(opened), kv_(kv), admission_(admission) {}
  StepPlanner(const StepPlanner&) = delete;
  StepPlanner& operator=(const StepPlanner&) = delete;
  void init(std::span<step::Ready> ready, std::span<step::Slice> slices);

  // Sessions that have rows for a step, in order. Each first takes what others have computed of its
  // tokens meanwhile.
  std::span<step::Ready> ready();
  // Slices of those that are ready and wait for nothing. Prompts slow down the answers that run
  // beside them, up to the bound on the gap between tokens.
  std::span<const step::Slice> plan(std::span<const step::Ready> ready);
  // Notes how long rows took.
  void observe(u32 n_decode_rows, u32 n_prefill_rows, u64 took_ns);

 private:
  std::optional<u32> n_rows_of(Session& session);
  step::StepLimits limits_of(std::span<const step::Ready> ready) const;

  const Opened& o_;
  SessionKv& kv_;
  Admission& admission_;
  std::span<step::Ready> ready_{};  // [sessions_max]
  step::Schedule schedule_{};
  step::Pace pace_{};
};

}  // namespace tarn::engine
