// runtime/engine/engine.h
//
// A model in memory and the sessions on it. Advances only by step(): each step takes the next rows
// of all sessions that have something to do, runs one forward pass over them and samples.
//
//   thread   one thread, the engine's (engine_thread.h); only request_cancel() and take_event() may
//            be called from others
//   memory   everything lies in the arena that open() reserved; nothing is asked of the system
//            afterwards
//   errors   Result; a session's own failure ends its generation with an event, never the engine
#pragma once

#include <atomic>
#include <span>
#include <string_view>

#include "kernels/cpu_table.h"
#include "platform/cpu/worker_pool.h"
#include "runtime/arena/arena.h"
#include "runtime/engine/engine_status.h"
#include "runtime/engine/open_args.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/session.h"
#include "runtime/exec/executor.h"
#include "runtime/kv/group_pool.h"
#include "runtime/method/selector.h"
#include "runtime/model/loaded_model.h"
#include "runtime/reuse/archive.h"
#include "runtime/text/encoder.h"

namespace tarn::lab {
class Probe;
}

namespace tarn::engine {

using SessionIdx = u32;

class ModelFile;

class Engine final : private step::StepHost {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // Reserves exactly the plan, streams the weights in, seals. On failure nothing is kept.
  Result<void> open(const OpenArgs& args);
  void close();

  Result<SessionIdx> create_session();
  void destroy_session(SessionIdx idx);
  Result<void> feed(SessionIdx idx, std::span<const u32> ids);
  Result<void> generate(SessionIdx idx, const GenerateParams& params);
  Result<void> truncate(SessionIdx idx, u32 n_tokens);
  Result<SessionIdx> fork(SessionIdx idx);

  // Sessions that outlive the engine, under a name, where the configuration keeps them
  // (reuse/archive.h). restore(): a new session; not_found: no session of this name is there.
  Result<void> autosave(SessionIdx idx, std::string_view name);
  Result<reuse::SaveDone> save(SessionIdx idx, std::string_view name);
  struct Restored {
    SessionIdx idx = 0;
    u32 n_tokens = 0;
    u32 n_computed = 0;       // of them, whose KV is there
    u32 turn_begin = 0;       // where its last input begins
    bool is_cut_off = false;  // saved in the middle, or before anybody asked for an answer
    u64 n_drawn = 0;          // then: tokens of that generation, of Session::sampler
    u64 revision = 0;
    u64 took_ns = 0;
  };
  Result<Restored> restore(std::string_view name);
  // For exports, imports and what is to be erased. The engine does nothing else before they end.
  reuse::Archive& archive() { return archive_; }

  // Any thread. On a CPU what runs now ends in front of the step's next tasks: its end is told at
  // once, its rows of the step count for nothing, and the step stops half way where nobody else's
  // are in it. On a GPU, and where the step begins or ends an index's clustering for the session,
  // it ends with the step. What is fed or begun later is not touched; what a cancelled prefill has
  // not computed is dropped, what was there before it stays.
  void request_cancel(SessionIdx idx) { session(idx).cancel.store(true); }
  // Before a close: there are no checkpoints from now on either. The one on disk is to be restored,
  // not what the cancel leaves.
  void request_end() {
    archive_.stop_checkpoints();
    for (Session& s : sessions_) s.cancel.store(true);
  }
  bool take_event(SessionIdx idx, Event* event, std::span<char> text) {  // the session's reader
    return session(idx).generation.events.pop(event, text);
  }
  // Called by step() when it has told a session's end before its own; may look, and call nothing
  // that changes the engine.
  void at_early_end(void (*fn)(void* context), void* context) {
    on_early_end_ = fn;
    early_end_context_ = context;
  }

  // The GPU is gone: no step does anything any more, and close() is all that is left. Any thread.
  bool device_lost() const { return device_lost_.load(std::memory_order_acquire); }

  // True if step() would do something.
  bool has_work() const;
  // One step over what there is to do; a trace with n_rows = 0 if there is nothing.
  const StepTrace& step();

  const Session& session_state(SessionIdx idx) const { return sessions_[idx]; }
  std::span<const Session> sessions() const { return sessions_; }
  const model::ModelSpec& spec() const { return model_.spec; }
  text::Encoder& text() { return text_; }
  const plan::Plan& plan() const { return plan_; }
  EngineStatus status() const;

 private:
  friend class lab::Probe;

  Session& session(SessionIdx idx) { return sessions_[idx]; }
  SessionIdx idx_of(const Session& s) const {
    return static_cast<SessionIdx>(&s - sessions_.data());
  }
  std::span<std::byte> region(plan::RegionId id) { return arena_.region(static_cast<u32>(id)); }
  Result<void> load(const OpenArgs& args);
  Result<void> load_model(const OpenArgs& args, ModelFile& file);
  Result<void> warm_up();
  Result<void> place_executor();
  std::span<std::byte> region_or_registered(plan::RegionId id,
                                            exec::GpuPlacement::Registered which);
  void place_selector();
  Result<void> place_sessions(const OpenArgs& args);
  Result<void> open_tiers(const OpenArgs& args, IoKind io_kind);
  Result<void> place_text(const ModelFile& file);
  void note_opened();

  Result<void> check_ids(std::span<const u32> ids) const;
  Unexpected no_places(u64 n_tokens) const;
  u32 rows_ready(const Session& session) const;
  void drop_rows();
  std::span<Ready> ready_sessions();
  void run_due_jobs(std::span<Ready> ready);
  std::span<const Slice> slices() const { return schedule_.slices.first(schedule_.n_slices); }
  void collect_rows();
  void read_embeddings();
  u32 n_rows_at_once(const Session& s) const;
  void prepare_selection();
  void trace_selection(const exec::Backend::Traffic& traffic);
  void add_rows(const Slice& slice);
  bool device_works();
  void work_beside();
  void lose_device(const Error& error);
  void commit_rows();
  void count_reads(Session& session, const step::Run& run);
  bool accept_rows();
  bool run_logits();
  bool takes_best() const;
  void consume_logits(Session& session, u32 position, u32 logits_row);
  void accept_token(Session& session, Sampled sampled);
  void finish(Session& session, Finish finish, Status status);

  // engine_cancel.cpp
  bool can_cancel(const Session& session) const;
  void end_cancelled(Session& session);
  void give_back_places();
  bool end_all_cancelled();
  bool tick(step::Pause pause) override;
  void drop_cancelled();

  // engine_kv.cpp
  void reserve_frames();
  void give_up(Session& session, const Error& error);
  bool lose_kv(Session& session);
  void note_cut(Session& session);
  Result<void> redo_answer(SessionIdx idx);
  Result<void> cut(Session& session, u32 n_slots);
  void trace_disk(const kv::KvStats& before);
  void commit(Session& session, u32 n_rows);

  // engine_save.cpp
  reuse::SessionView view_of(Session& session) const;
  void checkpoint();
  Result<void> restore_from(Session& session, const reuse::Archive::Found& found);
  bool restore_index(Session& session, const reuse::Manifest& manifest);
  std::string_view policy() const {
    return {reinterpret_cast<const char*>(&selection_key_), sizeof selection_key_};
  }

  // Parts, in the order in which they are built.
  Clock* clock_ = nullptr;
  Log log_{};
  Device* device_ = nullptr;
  std::atomic<bool> device_lost_{false};
  plan::Plan plan_{};
  RegionArena arena_{};
  WorkerPool workers_{};
  const kernels::CpuTable* table_ = nullptr;
  model::LoadedModel model_{};
  text::Encoder text_{};
  kv::KvCache kv_{};
  reuse::Archive archive_{};  // off where the plan keeps no sessions
  method::Selector selector_{&kv_};
  kernels::KvType kv_type_ = kernels::KvType::f16;
  SelectConfig select_config_{};
  store::Key selection_key_{};  // of select_config_ and kv_type_
  exec::Executor executor_{};
  std::span<Session> sessions_{};

  // One step.
  std::span<Ready> ready_{};  // [sessions_max]
  Schedule schedule_{};
  GenerationScratch scratch_{};
  StepTrace trace_{};
  bool may_abandon_ = false;  // while nothing of the step counts yet
  void (*on_early_end_)(void* context) = nullptr;
  void* early_end_context_ = nullptr;
  EngineStatus status_{};  // of what is not read from the parts by status()
};

}  // namespace tarn::engine
