// A model in memory and the sessions on it. Advances only by step(): each step takes the next rows
// of all sessions that have something to do, runs one forward pass over them and samples. Sessions
// are created, fed and read by the calls of sessions.h: create, feed, generate; then step() while
// has_work(), and take_event().
//
//   thread   one thread, the engine's (service/service.h), but where this file or sessions.h says
//            otherwise
//   memory   everything lies in the arena that open() reserved; nothing is asked of the system
//            afterwards
//   errors   Result; a session's own failure ends its generation with an event, never the engine
#pragma once

#include "platform/cpu/worker_pool.h"
#include "runtime/arena/arena.h"
#include "runtime/chat/conversation.h"
#include "runtime/chat/model_templates.h"
#include "runtime/engine/engine_status.h"
#include "runtime/engine/open_args.h"
#include "runtime/engine/sessions.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/home.h"
#include "runtime/step/pace.h"

namespace tarn::lab {
class Probe;
}

namespace tarn::engine {

class Engine final : public Sessions, private step::StepHost {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // Reserves exactly the plan, streams the weights in, seals. On failure nothing is kept.
  Result<void> open(const OpenArgs& args);
  void close();

  // Called within step() when a session's end was reported before the step has ended. May read the
  // engine's status, and call nothing that changes the engine.
  void at_early_end(void (*fn)(void* context), void* context) {
    on_early_end_ = fn;
    early_end_context_ = context;
  }

  // The GPU is gone: no step does anything any more, and close() is all that is left. Any thread.
  bool device_lost() const { return device_lost_.load(std::memory_order_acquire); }

  // True if step() would do something.
  bool has_work() const;
  // One step over what there is to do; a trace with n_rows = 0 if there is nothing. Valid until the
  // next step.
  const StepTrace& step();

  // A conversation as the model's template writes it, with the clock's date. On the thread that
  // reads texts, like all of text(); the text is there until the next one.
  Result<chat::Rendered> render_chat(chat::RenderArgs args);
  // Makes these the session's tokens: keeps the longest common prefix, drops the rest, feeds what
  // is new. Reused KV is counted from here on. If the disk fails, the prefix may be all that stays.
  // Of the parts those are chunks that are new as a whole.
  Result<void> feed_chat(SessionIdx idx, const chat::Conversation& conversation,
                         const Parts& parts = {});

  const model::ModelSpec& spec() const { return model_.spec; }
  const text::Encoder& text() const { return text_; }
  const plan::Plan& plan() const { return plan_; }
  EngineStatus status() const;

 private:
  friend class lab::Probe;

  class Opening;  // engine_open.cpp
  void note_opened(const Config& config);
  void run_due_jobs(std::span<Ready> ready);
  void collect_rows();
  void collect_blend(const step::Slice& slice);
  void prepare_selection();
  exec::Backend::Traffic run_batch();
  bool tick(step::Pause pause) override;
  bool device_works();
  void lose_device(const Error& error);
  void commit_rows();
  bool run_logits();
  void consume_logits(Session& session, u32 position, u32 logits_row);
  void run_idle();

  std::atomic<bool> device_lost_{false};
  RegionArena arena_{};
  WorkerPool workers_{};
  const kernels::CpuTable* table_ = nullptr;
  kernels::KvType kv_type_ = kernels::KvType::f16;
  exec::Homes homes_{};
  exec::Executor executor_{};
  chat::ModelTemplates templates_{};
  step::Schedule schedule_{};
  step::Pace pace_{};
  StepTrace trace_{};         // of the step under way, or the last one
  bool may_abandon_ = false;  // while nothing of the step counts yet
  void (*on_early_end_)(void* context) = nullptr;
  void* early_end_context_ = nullptr;
  EngineStatus status_{};  // what no other part of the engine counts
};

}  // namespace tarn::engine
