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

  // Sessions that outlive the engine (engine_park.cpp), where the configuration keeps them.
  // keep(): from now on its work is published under the name, at least every store.publish_ms and a
  // step. park(): all of it is on disk when it returns, and it goes on as before. resume(): a new
  // session that goes on where that one was, bit-equal; what the store has lost of it is computed
  // anew from its tokens. not_found: no session of this name is there.
  Result<void> keep(SessionIdx idx, std::string_view name);
  struct Saved {
    u32 n_tokens = 0;
    u64 bytes_written = 0;
    u64 took_ns = 0;
  };
  Result<Saved> park(SessionIdx idx, std::string_view name);
  struct Resumed {
    SessionIdx idx = 0;
    u32 n_tokens = 0;
    u32 n_computed = 0;       // of them, whose KV is there
    u32 turn_begin = 0;       // where its last input begins
    bool is_cut_off = false;  // published in the middle, or before anybody asked for an answer
    u64 n_drawn = 0;          // then: tokens of that generation, of Session::sampler
    u64 revision = 0;
    u64 took_ns = 0;
  };
  Result<Resumed> resume(std::string_view name);
  // Saved sessions, to a file, from one, and away (reuse/session_copy.h). The engine does nothing
  // else before they end. import: of this model and these settings alone; an empty name takes the
  // file's. import and delete: of no open session.
  Result<reuse::ExportDone> export_session(std::string_view name, const char* path);
  Result<reuse::ImportDone> import_session(const char* path, std::string_view name);
  Result<reuse::DeleteDone> delete_session(std::string_view name);

  // Any thread. On a CPU what runs now ends in front of the step's next tasks: its end is told at
  // once, its rows of the step count for nothing, and the step stops half way where nobody else's
  // are in it. On a GPU, and where the step begins or ends an index's clustering for the session,
  // it ends with the step. What is fed or begun later is not touched; what a cancelled prefill has
  // not computed is dropped, what was there before it stays.
  void request_cancel(SessionIdx idx) { session(idx).cancel.store(true); }
  // For who closes the engine: nothing is published from now on either, since what a kept session
  // has on disk is to be gone on with, and not what the cancel leaves of it.
  void request_end() {
    is_ending_.store(true, std::memory_order_relaxed);
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
  void drop_save(Session& s);
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

  // engine_park.cpp
  reuse::KvIdentity kv_identity() const;
  // Whether sessions are kept now; the reason where they are not.
  Result<void> check_keeps() const;
  bool publishes() const;
  bool is_due(const Session& session, u64 now_ns) const;
  bool has_answer_to_publish(const Session& session) const;
  bool rests_unpublished(const Session& session) const;
  void begin_publication(Session& session);
  void take_publication();
  void end_publication();
  void publish_last(Session& session);
  void tell_unpublished(const Error& why) const;
  u32 n_full_pages(const Session& session) const;
  u32 n_published_pages(const Session& session) const;
  u32 n_published_slots(const Session& session) const;
  void put_index(const Session& session, reuse::SaveArgs& args) const;
  void leave_indexes();
  bool take_up_index(Session& session, const reuse::Manifest& manifest);
  void write_policy();
  std::string_view policy() const;
  Result<void> take_name(SessionIdx idx, std::string_view name);
  void forget_name(Session& session);
  reuse::SaveArgs save_args(Session& session, u32 n_slots) const;
  Result<void> take_up(Session& session, const reuse::Manifest& manifest);
  void publish();
  void tell_evictions();
  void ask_more(Session& session);

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
  reuse::SessionStore session_store_{};  // off where the plan keeps none
  method::Selector selector_{&kv_};
  kernels::KvType kv_type_ = kernels::KvType::f16;
  SelectConfig select_config_{};
  std::array<u64, 22> policy_words_{};  // what a kept session's choices depend on
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

  // Publication of kept sessions.
  u64 publish_ns_ = 0;  // 0: when they are parked
  Session* publishing_ = nullptr;
  u32 n_publishing_ = 0;                     // slots
  store::Key publishing_key_{};              // of its index
  Ended publishing_ended_ = Ended::nothing;  // what stands at its end
  u64 n_evictions_told_ = 0;
  std::atomic<bool> is_ending_{false};
};

}  // namespace tarn::engine
