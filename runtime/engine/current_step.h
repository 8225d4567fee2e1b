// The step under way: its trace, whether its device works, and whether its sessions still want it.
// A cancel or a deadline ends a session in the middle of a step, where nothing of the step counts
// yet.
//
//   thread   the engine's, but for device_lost()
#pragma once

#include <atomic>

#include "runtime/engine/engine_status.h"
#include "runtime/engine/sessions/session_kv.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/home.h"

namespace tarn::engine {

class CurrentStep final : public step::StepHost {
 public:
  CurrentStep(const Opened& opened, SessionKv& kv, exec::Homes& homes, exec::Executor& executor)
      : o_(opened), kv_(kv), homes_(homes), executor_(executor) {}
  CurrentStep(const CurrentStep&) = delete;
  CurrentStep& operator=(const CurrentStep&) = delete;

  void open() { device_lost_.store(false); }
  StepTrace& trace() { return trace_; }
  void begin() { trace_ = {.start_ns = o_.clock->now_ns()}; }

  // Returns whether the GPU is gone: no step does anything any more. Any thread.
  bool device_lost() const { return device_lost_.load(std::memory_order_acquire); }
  void lose_device(const Error& error);
  // Waits for the device; false where it is lost. An error of any kind loses it: which of the
  // step's results it spoilt cannot be told, and after most of them the context is dead.
  bool device_works();

  // Called when a session's end was told before the step has ended. May read the engine's status,
  // and call nothing that changes the engine.
  void at_early_end(void (*fn)(void* context), void* context) {
    on_early_end_ = fn;
    early_end_context_ = context;
  }
  // Ends what cancelled sessions do, and what is late; returns whether there were any.
  // SessionKv::release_slots() comes later.
  bool end_cancelled();
  // From now on tick() ends cancelled sessions, or does not any more.
  void let_end_sessions(bool may) { may_abandon_ = may; }
  // Returns whether the step is still wanted: while one of its sessions is. One with a row that
  // selects is a single token of its session, and goes on to its end.
  bool tick(step::Pause pause) override;

 private:
  const Opened& o_;
  SessionKv& kv_;
  exec::Homes& homes_;
  exec::Executor& executor_;
  std::atomic<bool> device_lost_{false};
  StepTrace trace_{};
  bool may_abandon_ = false;
  void (*on_early_end_)(void* context) = nullptr;
  void* early_end_context_ = nullptr;
};

// Adds the time and the traffic of one run of a phase to its trace.
class PhaseTimer {
 public:
  PhaseTimer(StepTrace& trace, Phase kind, Clock& clock)
      : phase_(trace.phases[static_cast<u64>(kind)]), clock_(clock), start_ns_(clock.now_ns()) {
    ++phase_.n_runs;
  }
  ~PhaseTimer() { phase_.busy_ns += clock_.now_ns() - start_ns_; }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  void add(const exec::Backend::Traffic& traffic) {
    phase_.weight_bytes += traffic.weight_bytes;
    phase_.kv_bytes += traffic.kv_bytes;
  }

 private:
  PhaseTrace& phase_;
  Clock& clock_;
  u64 start_ns_;
};

}  // namespace tarn::engine
