// A model in memory and the sessions on it. Advances only by step(): each step takes the next rows
// of all sessions that have something to do, runs one forward pass over them and samples. Callers
// create, feed and read sessions by sessions/session_pool.h, then call step() while has_work().
//
//   opened_     what it was opened with: plan, model, tokenizer, configuration
//   sessions_   SessionPool: the calls on sessions between two steps
//   admission_  Admission: which of them run
//   kv_         SessionKv: their KV, taken, reserved, committed, cut, evicted
//   loads_      LoadControl: whether KV is read or computed anew
//   planner_    StepPlanner: which rows make the next step
//   jobs_       Jobs: index units, the disk, checkpoints
//   runner_     BatchRunner: computes the rows, commits and samples
//   current_    CurrentStep: the trace, cancels in the middle of a step, a device that is lost
//
//   thread   one thread, the engine's (service/service.h), but where this file or
//            sessions/session_pool.h says otherwise
//   memory   everything lies in the arena that open() reserved; nothing is asked of the system
//            afterwards
//   errors   Result; a session's own failure ends its generation with an event, never the engine
#pragma once

#include "platform/cpu/worker_pool.h"
#include "runtime/arena/arena.h"
#include "runtime/chat/model_templates.h"
#include "runtime/engine/batch_runner.h"
#include "runtime/engine/current_step.h"
#include "runtime/engine/engine_status.h"
#include "runtime/engine/jobs.h"
#include "runtime/engine/open_args.h"
#include "runtime/engine/sessions/session_pool.h"
#include "runtime/engine/step_planner.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/home.h"

namespace tarn::lab {
class Probe;
}

namespace tarn::engine {

class Engine final {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { close(); }

  // Reserves exactly the plan, streams the weights in, seals. On failure nothing is kept.
  Result<void> open(const OpenArgs& args);
  void close();

  SessionPool& sessions() { return sessions_; }
  const SessionPool& sessions() const { return sessions_; }
  // For exports, imports and what is to be erased. The engine does nothing else before they end.
  reuse::Archive& archive() { return kv_.archive(); }

  // Returns whether step() would do something.
  bool has_work() const;
  // Returns when the first answer reaches its deadline, by the engine's clock: step() ends it then.
  // 0: none has one.
  u64 next_deadline_ns() const;
  // Runs one step over what there is to do; a trace with n_rows = 0 if there is nothing. Valid
  // until the next step.
  const StepTrace& step();
  // CurrentStep::at_early_end().
  void at_early_end(void (*fn)(void* context), void* context) {
    current_.at_early_end(fn, context);
  }
  // Returns whether the GPU is gone: no step does anything any more, and close() is all that is
  // left. Any thread.
  bool device_lost() const { return current_.device_lost(); }

  // Renders a conversation as the model's template writes it, with the clock's date. On the thread
  // that reads texts, like all of text(); the text is there until the next one.
  Result<chat::Rendered> render_chat(chat::RenderArgs args);

  const model::ModelSpec& spec() const { return opened_.model.spec; }
  const text::Encoder& text() const { return opened_.text; }
  const plan::Plan& plan() const { return opened_.plan; }
  EngineStatus status() const;

 private:
  friend class lab::Probe;

  class Opening;  // engine_open.cpp
  void note_opened(const Config& config);

  Opened opened_{};
  RegionArena arena_{};
  WorkerPool workers_{};
  exec::Homes homes_{};
  exec::Executor executor_{};
  chat::ModelTemplates templates_{};
  SessionKv kv_{opened_};
  LoadControl loads_{opened_, kv_};
  Admission admission_{opened_, kv_, loads_};
  SessionPool sessions_{opened_, kv_, loads_, admission_};
  CurrentStep current_{opened_, kv_, homes_, executor_};
  StepPlanner planner_{opened_, kv_, admission_};
  Jobs jobs_{opened_, kv_, sessions_, current_};
  BatchRunner runner_{opened_, kv_, admission_, executor_, current_};
  EngineStatus status_{};  // what no other part of the engine counts
};

}  // namespace tarn::engine
