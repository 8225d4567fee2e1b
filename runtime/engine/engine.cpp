// Sessions and steps. How an engine is built is in engine_open.cpp.
#include "runtime/engine/engine.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

Unexpected refused(const char* hint, Figure a = {}, Figure b = {}) {
  return fail({.status = Status::invalid_request, .hint = hint, .figures = {{a, b}}});
}

constexpr u64 kIdleWaitNs = 1'000'000;  // for the disk, where a step has no rows

// Adds the time and the traffic of one run of a phase to its trace.
class PhaseTimer {
 public:
  PhaseTimer(StepTrace& trace, Phase kind, Clock& clock)
      : phase_(trace.phases[static_cast<u64>(kind)]), clock_(clock), start_ns_(clock.now_ns()) {
    if (phase_.n_runs++ == 0) phase_.start_ns = start_ns_;
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

}  // namespace

const char* phase_name(Phase kind) {
  switch (kind) {
    case Phase::layers:
      return "layers";
    case Phase::logits:
      return "logits";
    case Phase::sample:
      return "sample";
    case Phase::select:
      return "select";
    case Phase::gather:
      return "gather";
    case Phase::attend:
      return "attend";
    case Phase::cluster:
      return "cluster";
    case Phase::cluster_beside:
      return "cluster_beside";
    case Phase::count:
      break;
  }
  return "none";
}

Engine::~Engine() { close(); }

// ---- Sessions -------------------------------------------------------------------------------

Result<SessionIdx> Engine::create_session() {
  for (SessionIdx idx = 0; idx < sessions_.size(); ++idx) {
    Session& s = session(idx);
    if (s.state != SessionState::free) continue;
    s.state = SessionState::idle;
    s.n_ids = 0;
    s.turns.start_over(0);
    s.turn_begin = 0;
    s.n_settled = 0;
    s.last_error = {};
    s.generation.fed_ns = 0;
    s.cancel.store(false);
    s.generation.events.clear();
    s.on_logits = nullptr;
    archive_.forget(s.saved);
    s.first_approx_slot = Session::kNone;
    selector_.forget(idx);
    return idx;
  }
  return fail({.status = Status::would_block,
               .hint = "all sessions are in use: destroy one, or raise engine.sessions_max",
               .figures = {{{"sessions_max", plan_.sessions_max}}}});
}

void Engine::destroy_session(SessionIdx idx) {
  Session& s = session(idx);
  TARN_ASSERT(s.state != SessionState::free);
  if (s.saved.name_bytes > 0) archive_.checkpoint_last(view_of(s));
  archive_.forget(s.saved);
  s.sequence.clear();
  selector_.forget(idx);
  s.n_ids = 0;
  s.state = SessionState::free;
}

Result<void> Engine::check_ids(std::span<const u32> ids) const {
  for (const u32 id : ids) {
    if (id < model_.spec.n_vocab) continue;
    return refused("a token is not in the vocabulary", {"token", id},
                   {"n_vocab", model_.spec.n_vocab});
  }
  return {};
}

Unexpected Engine::no_places(u64 n_tokens) const {
  return fail({.status = Status::would_block,
               .hint = "other sessions hold the KV now: end or truncate one, or raise -c "
                       "(kv.context_tokens)",
               .figures = {{{"tokens", n_tokens}, {"groups_free", kv_.pool().groups_free()}}}});
}

Result<void> Engine::feed(SessionIdx idx, std::span<const u32> ids) {
  Session& s = session(idx);
  if (s.state == SessionState::generating) {
    return refused("the session is generating: wait for its end, or cancel it");
  }
  const u64 room_tokens = plan_.context_tokens - s.n_ids;
  if (ids.size() > room_tokens) {  // before the ids are read: a wrong count leads out of them
    return refused(
        "the session would be longer than the context: shorten the text, or raise -c "
        "(kv.context_tokens)",
        {"tokens", ids.size()}, {"room", room_tokens});
  }
  TARN_CHECK(check_ids(ids));
  if (s.state == SessionState::idle) TARN_CHECK(redo_answer(idx));
  if (!kv::KvCache::reserve_slots(s.sequence, s.n_ids) ||
      !s.sequence.reserve(static_cast<u32>(ids.size()))) {
    return no_places(ids.size());
  }
  s.last_error = {};
  if (s.state == SessionState::idle) {
    s.cancel.store(false);  // one that came too late for what it meant
    s.n_settled = s.n_ids;
    s.turn_begin = s.n_ids;
  }
  std::copy(ids.begin(), ids.end(), s.ids.begin() + s.n_ids);
  s.turns.feed(s.n_ids, static_cast<u32>(ids.size()));
  s.n_ids += static_cast<u32>(ids.size());
  s.saved.ask_more();
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  if (s.generation.fed_ns == 0) s.generation.fed_ns = clock_->now_ns();
  return {};
}

Result<void> Engine::generate(SessionIdx idx, const GenerateParams& params) {
  Session& s = session(idx);
  if (s.state == SessionState::generating) return refused("the session is generating already");
  if (s.n_ids == 0) return refused("nothing was fed: feed at least one token (BOS, say) first");
  TARN_CHECK(validate(params.sampler, model_.spec.n_vocab));
  TARN_CHECK(s.generation.set_stops(params.stops));
  if (!kv::KvCache::reserve_slots(s.sequence, s.n_ids)) return no_places(s.n_pending());
  if (s.n_pending() == 0) {  // a cut behind a computed token: its logits are wanted again
    TARN_CHECK(cut(s, s.n_ids - 1));
    if (!s.sequence.reserve(s.n_pending())) {
      return fail({.status = Status::would_block,
                   .hint = "no KV group is free to redo the last token: end another session"});
    }
  }
  s.generation.begin(params, text_.tokenizer());
  if (s.generation.fed_ns == 0) s.generation.fed_ns = clock_->now_ns();
  if (s.state == SessionState::idle) s.n_settled = s.n_ids;
  s.cancel.store(false);
  s.last_error = {};  // computed after all, or an event says why not
  s.saved.ask_more();
  s.state = SessionState::generating;
  return {};
}

Result<void> Engine::truncate(SessionIdx idx, u32 n_tokens) {
  Session& s = session(idx);
  if (s.state == SessionState::generating) {
    return refused("the session is generating: wait for its end, or cancel it");
  }
  if (n_tokens > s.n_ids) {
    return refused("the session has fewer tokens than that", {"asked", n_tokens},
                   {"tokens", s.n_ids});
  }
  s.sequence.abandon();
  archive_.drop(s.saved);
  if (n_tokens < s.sequence.n_slots()) {
    const Result<void> is_cut = cut(s, n_tokens);
    if (!is_cut) {  // its KV may be lost, and others hold what was its
      if (!kv::KvCache::reserve_slots(s.sequence, s.n_ids)) s.state = SessionState::idle;
      return is_cut;
    }
  }
  selector_.truncate(idx, n_tokens);
  s.n_ids = n_tokens;
  s.turns.truncate(n_tokens);
  s.n_settled = n_tokens;
  s.turn_begin = std::min(s.turn_begin, n_tokens);
  s.saved.n_slots = std::min(s.saved.n_slots, n_tokens);
  s.saved.ask_more();
  s.last_error = {};
  const bool computes = kv::KvCache::reserve_slots(s.sequence, s.n_ids) && s.n_computable() > 0;
  s.state = computes ? SessionState::computing : SessionState::idle;
  return {};
}

Result<SessionIdx> Engine::fork(SessionIdx idx) {
  Session& source = session(idx);
  if (source.state != SessionState::idle) {
    return refused("only an idle session can be forked: wait until it has computed and generated");
  }
  TARN_TRY(const SessionIdx copy_idx, create_session());
  Session& copy = session(copy_idx);
  if (const Result<void> is_copied = kv_.fork(source.sequence, copy.sequence, source.n_pending());
      !is_copied) {
    destroy_session(copy_idx);
    return fail(is_copied.error());
  }
  std::copy_n(source.ids.begin(), source.n_ids, copy.ids.begin());
  copy.n_ids = source.n_ids;
  copy.turns = source.turns;
  copy.turn_begin = source.turn_begin;
  copy.first_approx_slot = source.first_approx_slot;
  copy.last_error = source.last_error;
  selector_.copy(idx, copy_idx, copy.sequence);
  return copy_idx;
}

// ---- One step -------------------------------------------------------------------------------

// Rows that a session could put into a step now.
u32 Engine::rows_ready(const Session& s) const {
  if (s.state == SessionState::computing) return s.n_computable();
  if (s.state != SessionState::generating) return 0;
  return s.generation.has_room(scratch_) ? s.n_pending() : 0;
}

bool Engine::has_work() const {
  return !device_lost() &&
         (selector_.has_work() || kv_.is_moving() ||
          std::any_of(sessions_.begin(), sessions_.end(), [this](const Session& s) {
            return rows_ready(s) > 0 ||
                   archive_.is_due_now(s.saved, s.sequence.n_slots(),
                                       s.state == SessionState::idle) ||
                   (s.cancel.load() && can_cancel(s));
          }));
}

void Engine::add_rows(const Slice& slice) {
  Session& s = session(slice.session);
  const u32 begin = s.sequence.n_slots();
  const bool is_last = s.state == SessionState::generating && begin + slice.n_rows == s.n_ids;
  executor_.add({.sequence = &s.sequence,
                 .session = slice.session,
                 .kind = slice.kind,
                 .is_generated = slice.is_generated},
                s.ids.subspan(begin, slice.n_rows),
                s.on_logits != nullptr ? slice.n_rows : u32{is_last});
  const bool is_decode = slice.kind == RunKind::decode;
  (is_decode ? trace_.n_decode_rows : trace_.n_prefill_rows) += slice.n_rows;
}

void Engine::drop_rows() {
  executor_.clear();
  trace_.n_decode_rows = trace_.n_prefill_rows = 0;
}

// Rows of an input go together. A session that was taken up may have tokens that it had generated
// to compute again. Of these the last one goes alone, as it would have: an index may begin with it.
// With those before it none has begun, or all of their KV would have been kept.
u32 Engine::n_rows_at_once(const Session& s) const {
  const u32 n_slots = s.sequence.n_slots(), n_fed = s.turns.n_fed();
  if (!selector_.is_on()) return plan_.rows_max;
  return n_slots < n_fed ? n_fed - n_slots : std::max(s.n_pending() - 1, 1u);
}

// The sessions that have rows for a step, in order.
std::span<Ready> Engine::ready_sessions() {
  u32 n = 0;
  for (Session& s : sessions_) {
    const u32 n_rows = rows_ready(s);
    if (n_rows == 0) continue;
    Ready& ready = ready_[n++];
    ready = {.session = idx_of(s), .n_rows = std::min(n_rows, n_rows_at_once(s))};
    if (s.state != SessionState::generating || n_rows > 1) continue;
    ready.kind = s.generation.n_generated > 0 ? RunKind::decode : RunKind::first;
    ready.is_generated = s.sequence.n_slots() >= s.turns.n_fed();
  }
  return ready_.first(n);
}

void Engine::collect_rows() {
  for (const Slice& slice : slices()) add_rows(slice);
  executor_.batch().takes_best = takes_best();
}

// Whether nobody in the step wants more of its logits than the best token.
bool Engine::takes_best() const {
  return std::ranges::all_of(executor_.batch().runs, [this](const step::Run& run) {
    const Session& s = sessions_[run.session];
    return s.on_logits == nullptr &&
           (s.state != SessionState::generating || s.generation.takes_best());
  });
}

// The rows' embeddings, where they are in the file. Nobody's step goes on without them.
void Engine::read_embeddings() {
  const Result<void> read = executor_.read_embeddings();
  if (read) return;
  for (const step::Run& run : executor_.batch().runs) give_up(session(run.session), read.error());
  drop_rows();
}

// Clustering: a layer of what each row must have done before it. A row that wants more waits for
// the next step; so does one whose session is cancelled meanwhile.
void Engine::run_due_jobs(std::span<Ready> ready) {
  if (!selector_.is_on() || ready.empty()) return;
  PhaseTimer timer(trace_, Phase::cluster, *clock_);
  selector_.begin_step(ready);
  const bool beside_prompt =
      std::ranges::any_of(ready, [](const Ready& each) { return each.kind != RunKind::decode; });
  may_abandon_ = true;
  for (Ready& each : ready) {
    Session& s = session(each.session);
    if (s.state == SessionState::idle || !each.is_generated) continue;
    const Result<bool> waits =
        selector_.make_index(each.session, s.sequence.n_slots() + 1, beside_prompt);
    each.waits = !waits || *waits;
    if (waits) continue;
    TARN_ASSERT(kv_.has_tiers());
    (void)lose_kv(s);
    if (s.state != SessionState::idle) give_up(s, waits.error());
  }
  may_abandon_ = false;
  for (Ready& each : ready) {
    const bool has_ended = session(each.session).state == SessionState::idle;
    each.waits = each.waits || has_ended;  // cancelled meanwhile, or its KV is lost
    trace_.n_waiting += u32{each.waits};
  }
  give_back_places();
}

// Which rows select; in a step without rows, clustering that nobody waits for yet.
void Engine::prepare_selection() {
  const std::span<step::Run> runs = executor_.batch().runs;
  if (!selector_.is_on() || (runs.empty() && trace_.n_waiting > 0)) return;
  PhaseTimer timer(trace_, Phase::cluster, *clock_);
  if (runs.empty()) {
    const Result<void> worked = selector_.work();
    if (!worked) lose_device(worked.error());
    return;
  }
  for (step::Run& run : runs) {
    if (!run.is_generated) continue;
    const Session& s = session(run.session);
    const Result<bool> selects = selector_.begin_row(
        run.session, s.sequence, s.sequence.n_slots() + 1, trace_.n_prefill_rows > 0);
    if (!selects && !kv_.has_tiers()) return lose_device(selects.error());
    if (!selects) {
      kv_.note_failure(selects.error());
      run.state = step::RunState::failed;
      continue;
    }
    run.selects = *selects;
    if (run.selects)
      selector_.parts().offloaded_groups(run.session, &run.offloaded_begin, &run.offloaded_end);
  }
}

// The GPU has a step to compute: its part of a clustering meanwhile. Beside a prompt only what has
// to be: what takes longer than the GPU keeps a first token waiting.
void Engine::work_beside() {
  if (plan_.gpu_select.n_rows == 0) return;
  if (trace_.n_prefill_rows > 0 && !selector_.has_units_due()) return;
  PhaseTimer timer(trace_, Phase::cluster_beside, *clock_);
  const Result<void> worked = selector_.work_beside();
  if (!worked) lose_device(worked.error());
}

// Whether what the step has computed so far may be believed. An error of any kind ends the engine:
// which of the step's results it spoilt cannot be told, and after most of them the context is dead.
bool Engine::device_works() {
  if (device_lost()) return false;
  const Result<void> checked = executor_.finish();
  if (!checked) lose_device(checked.error());
  return checked.has_value();
}

void Engine::lose_device(const Error& error) {
  std::array<char, 256> text{};
  format_error(error, text.data(), text.size());
  log_.error("the GPU is lost: %s", text.data());
  device_->give_up();
  archive_.stop_checkpoints();
  device_lost_.store(true, std::memory_order_release);
}

const StepTrace& Engine::step() {
  trace_ = StepTrace{.step_idx = status_.counters.n_steps, .start_ns = clock_->now_ns()};
  if (device_lost()) return trace_;
  (void)end_all_cancelled();
  give_back_places();
  drop_rows();
  const kv::KvStats moved_before = kv_.stats();
  const std::span<Ready> ready = ready_sessions();
  run_due_jobs(ready);
  schedule(ready, plan_.rows_max, &schedule_);
  reserve_frames();
  collect_rows();
  read_embeddings();
  prepare_selection();
  if (device_lost()) return trace_;
  step::Batch& batch = executor_.batch();
  for (step::Run& run : batch.runs) {  // chunks on the device need no frames
    if (plan_.gpu_stream.n_kept > 0 && !run.selects) {
      run.offloaded_end = executor_.gpu().backend().parts().n_kept_groups(run);
    }
  }
  if (!batch.runs.empty()) kv_.plan_step(batch);
  trace_.n_rows = batch.n_rows;
  trace_.n_sequences = static_cast<u32>(batch.runs.size());
  trace_.n_logit_rows = static_cast<u32>(batch.logit_rows.size());
  exec::Backend::Traffic traffic{};
  if (batch.n_rows > 0) {
    {
      PhaseTimer timer(trace_, Phase::layers, *clock_);
      may_abandon_ = !executor_.on_gpu();  // a GPU's step is not asked
      executor_.run_layers(this);
      may_abandon_ = false;
      work_beside();
      if (!device_works()) return trace_;
      traffic = executor_.take_traffic();
      timer.add(traffic);
    }
    trace_.abandoned = executor_.is_abandoned();
    drop_cancelled();
    if (!trace_.abandoned && !accept_rows()) return trace_;
  }
  trace_selection(traffic);
  const bool is_idle = trace_.n_rows == 0 && trace_.n_waiting == 0;
  if (kv_.is_moving()) kv_.pump(is_idle ? kIdleWaitNs : 0);
  kv_.tiers().store.log_state();
  checkpoint();
  trace_disk(moved_before);
  trace_.groups_free = kv_.pool().groups_free();
  trace_.end_ns = clock_->now_ns();
  status_.counters.add(trace_);
  return trace_;
}

// What the layers left counts. False when the device was lost on the way.
bool Engine::accept_rows() {
  if (trace_.n_logit_rows == 0) commit_rows();
  if (!run_logits()) return false;
  for (const step::Run& run : executor_.batch().runs) {
    Session& s = session(run.session);
    if (s.state != SessionState::computing || s.n_computable() > 0) continue;
    s.state = SessionState::idle;
    const auto& restored = s.saved.restored;
    if (!restored || restored->is_cut_off) s.saved.stopped_at = reuse::StoppedAt::input;
  }
  return true;
}

// False when the device was lost before all were computed. A decode step may be one graph, which
// ends with its first logits: its KV counts from then on.
bool Engine::run_logits() {
  const step::Batch& batch = executor_.batch();
  const step::Run* run = batch.runs.data();
  for (u32 begin = 0, n = 0; begin < trace_.n_logit_rows; begin += n) {
    {
      PhaseTimer timer(trace_, Phase::logits, *clock_);
      n = executor_.run_logits(begin);
      if (!device_works()) return false;
      timer.add(executor_.take_traffic());
    }
    if (begin == 0) commit_rows();
    PhaseTimer timer(trace_, Phase::sample, *clock_);
    for (u32 i = 0; i < n; ++i) {
      const u32 row = batch.logit_rows[begin + i];
      while (row >= run->row_begin + run->n_rows) ++run;
      if (run->state != step::RunState::runs) continue;
      consume_logits(session(run->session), batch.positions[row], i);
    }
  }
  return true;
}

void Engine::consume_logits(Session& s, u32 position, u32 logits_row) {
  const std::span<f32> logits = executor_.logits(logits_row);
  if (s.on_logits != nullptr) s.on_logits(s.logits_context, position, logits);
  if (s.state != SessionState::generating || position + 1 != s.n_ids) return;
  const Result<Sampled> sampled = executor_.batch().takes_best
                                      ? sample_best(executor_.summary(logits_row))
                                      : s.generation.draw(logits, s.ids.first(s.n_ids), scratch_);
  if (!sampled) return give_up(s, sampled.error());
  accept_token(s, *sampled);
}

void Engine::accept_token(Session& s, Sampled sampled) {
  Generation& generation = s.generation;
  if (generation.n_generated < generation.forced.size()) {
    sampled.token = generation.forced[generation.n_generated];
  }
  ++trace_.n_tokens_out;
  const bool has_place = s.n_ids < plan_.context_tokens && s.sequence.reserve(1);
  if (has_place) s.ids[s.n_ids++] = sampled.token;
  const std::optional<Finish> end = generation.accept(sampled, clock_->now_ns(), scratch_);
  if (end || !has_place) finish(s, end.value_or(Finish::length), Status::ok);
}

void Engine::finish(Session& s, Finish reason, Status status) {
  s.generation.finish(reason, status, scratch_);
  s.state = SessionState::idle;
  s.saved.stop(/*has_answer=*/s.generation.n_generated > 0);
}

}  // namespace tarn::engine
