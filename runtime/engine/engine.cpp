// Steps. How an engine is built is in engine_open.cpp; the calls on sessions are in sessions.cpp.
#include "runtime/engine/engine.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

constexpr u64 kIdleWaitNs = 1'000'000;  // for the disk, where a step has no rows

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

// Prompts slow down the answers that run beside them, up to the bound on the gap between tokens.
step::StepLimits limits_of(std::span<const Ready> ready, const plan::Plan& plan,
                           const step::Pace& pace) {
  const auto n_answers = static_cast<u32>(std::ranges::count_if(ready, [](const Ready& each) {
    return each.kind == RunKind::decode && each.priority == step::Priority::interactive;
  }));
  step::StepLimits limits{.rows_max = plan.rows_max, .prompt_rows_max = plan.rows_max};
  if (n_answers > 0 && plan.token_gap_ns > 0)
    limits.prompt_rows_max = pace.prompt_rows(plan.token_gap_ns, n_answers, plan.rows_max);
  return limits;
}

}  // namespace

Engine::~Engine() { close(); }

bool Engine::has_work() const {
  return !device_lost() && (selector_.has_work() || kv_.is_moving() || have_work());
}

// Every row gets its place in memory, and its embedding where the table is in the file. A session
// for which that fails ends what it does; the others go on.
void Engine::collect_rows() {
  step::Batch& batch = executor_.batch();
  batch.takes_best = true;  // while nobody wants more of its logits
  const step::Slice* blended = nullptr;
  for (const step::Slice& slice : schedule_.slices.first(schedule_.n_slices)) {
    Session& s = sessions_[slice.session];
    if (blends(s)) {
      blended = &slice;
      continue;
    }
    if (const Result<void> writable = kv_.reserve_frames(s.sequence, slice.n_rows); !writable) {
      give_up(s, writable.error());
      continue;
    }
    const u32 begin = s.sequence.n_slots();
    const bool generates = s.state == SessionState::generating;
    const bool is_last = generates && begin + slice.n_rows == s.tokens.n_ids;
    executor_.add({.sequence = &s.sequence,
                   .session = slice.session,
                   .kind = slice.kind,
                   .is_generated = slice.is_generated},
                  s.tokens.ids.subspan(begin, slice.n_rows),
                  s.watch.fn != nullptr ? slice.n_rows : u32{is_last});
    const bool takes_best = s.watch.fn == nullptr && (!generates || s.generation.takes_best());
    batch.takes_best = batch.takes_best && takes_best;
    (slice.kind == RunKind::decode ? trace_.n_decode_rows : trace_.n_prefill_rows) += slice.n_rows;
  }
  if (blended != nullptr) collect_blend(*blended);
  if (const Result<void> read = executor_.read_embeddings(); !read) {
    if (!status_.model_lost) log_.error("%s", read.error().hint);
    status_.model_lost = true;
    for (const step::Run& run : batch.runs) give_up(sessions_[run.session], read.error());
    executor_.clear();
    trace_.n_decode_rows = trace_.n_prefill_rows = 0;
  }
  trace_.n_rows = batch.n_rows;
  trace_.n_sequences = static_cast<u32>(batch.runs.size());
  trace_.n_logit_rows = static_cast<u32>(batch.logit_rows.size());
}

// Rows of the prompt that is blended stand last. Where no token between two chosen ones is left, KV
// is placed without a row.
void Engine::collect_blend(const step::Slice& slice) {
  step::Batch& batch = executor_.batch();
  Session& s = sessions_[slice.session];
  const Result<reuse::Blend::Rows> rows =
      blend_.take(blend_target(s), slice.n_rows, plan_.rows_max - batch.n_rows);
  if (!rows && rows.error().status == Status::device_lost) return lose_device(rows.error());
  if (!rows) return lose_chunk(s, rows.error());
  const step::Run run{
      .sequence = rows->sequence, .session = slice.session, .kind = slice.kind, .part = rows->part};
  trace_.n_prefill_rows += slice.n_rows;
  if (rows->part != step::RunPart::own) {
    batch.check_layer = rows->check_layer;
    executor_.add(run, rows->ids, 0);
    if (rows->first_id) batch.tokens[batch.runs.back().row_begin] = *rows->first_id;
    return;
  }
  if (!rows->slots.empty()) return executor_.add_at(run, rows->ids, rows->slots);
  ++trace_.n_waiting;
  commit_blended(s, static_cast<u32>(rows->ids.size()));
}

// Clustering: a layer of what each row must have done before it. A row that wants more waits for
// the next step; so does one whose session is cancelled meanwhile.
void Engine::run_due_jobs(std::span<Ready> ready) {
  if (ready.empty()) return;
  PhaseTimer timer(trace_, Phase::cluster, *clock_);
  selector_.begin_step(ready);
  const bool beside_prompt =
      std::ranges::any_of(ready, [](const Ready& each) { return each.kind != RunKind::decode; });
  may_abandon_ = true;
  for (Ready& each : ready) {
    Session& s = sessions_[each.session];
    if (s.state == SessionState::idle || !each.is_generated) continue;
    const Result<bool> waits =
        selector_.make_index(each.session, s.sequence.n_slots() + 1, beside_prompt);
    each.waits = !waits || *waits;
    if (waits) continue;
    lose_kv(s);
    if (s.state != SessionState::idle) give_up(s, waits.error());
  }
  may_abandon_ = false;
  for (Ready& each : ready) {
    const bool has_ended = sessions_[each.session].state == SessionState::idle;
    each.waits = each.waits || has_ended;  // cancelled meanwhile, or its KV is lost
    trace_.n_waiting += u32{each.waits};
  }
  release_slots();
}

// Which rows select.
void Engine::prepare_selection() {
  const std::span<step::Run> runs = executor_.batch().runs;
  if (runs.empty()) return;
  PhaseTimer timer(trace_, Phase::cluster, *clock_);
  for (step::Run& run : runs) {
    if (!run.is_generated) continue;
    const Session& s = sessions_[run.session];
    const Result<bool> selects = selector_.begin_row(
        run.session, s.sequence, s.sequence.n_slots() + 1, trace_.n_prefill_rows > 0);
    if (!selects && selects.error().status == Status::device_lost)
      return lose_device(selects.error());
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
  homes_.processor().give_up();
  archive_.stop_checkpoints();
  device_lost_.store(true, std::memory_order_release);
}

const StepTrace& Engine::step() {
  trace_ = {.start_ns = clock_->now_ns()};
  if (device_lost()) return trace_;
  const kv::KvStats kv_before = kv_.stats();
  executor_.clear();
  (void)end_all_cancelled();
  release_slots();
  admit();
  const std::span<Ready> ready = ready_sessions();
  run_due_jobs(ready);
  schedule(ready, limits_of(ready, plan_, pace_), shares_, &schedule_);
  collect_rows();
  prepare_selection();
  const exec::Backend::Traffic traffic = run_batch();
  admit();
  run_idle();
  if (device_lost()) return trace_;
  trace_selection(&trace_, selector_.take_spent(), traffic);
  trace_disk(&trace_.disk, kv_before, kv_.stats());
  trace_.end_ns = clock_->now_ns();
  if (!trace_.abandoned && trace_.n_rows > 0)
    pace_.observe(trace_.n_decode_rows, trace_.n_prefill_rows, trace_.end_ns - trace_.start_ns);
  note_costs(trace_, executor_.batch().runs, kv_before, kv_.stats(), &controller_);
  status_.counters.add(trace_);
  return trace_;
}

// The forward pass, and what counts of it. A GPU's part of a clustering is done meanwhile: beside a
// prompt only what has to be, since what takes longer than the GPU keeps a first token waiting.
exec::Backend::Traffic Engine::run_batch() {
  step::Batch& batch = executor_.batch();
  if (batch.n_rows == 0 || device_lost()) return {};
  executor_.note_kept_groups();
  kv_.plan_step(batch, blend_.read_ahead());
  for (const step::Waiting& each : looked_ahead()) {
    if (sessions_[each.session].waits()) kv_.plan_later(sessions_[each.session].sequence);
  }
  exec::Backend::Traffic traffic{};
  {
    PhaseTimer timer(trace_, Phase::layers, *clock_);
    may_abandon_ = executor_.may_abandon();
    executor_.run_layers(this);
    may_abandon_ = false;
    const bool must_work = trace_.n_prefill_rows == 0 || selector_.has_units_due();
    if (plan_.gpu.choosing_rows() > 0 && must_work) {
      PhaseTimer beside(trace_, Phase::cluster_beside, *clock_);
      if (const Result<void> worked = selector_.work_beside(); !worked) lose_device(worked.error());
    }
    if (!device_works()) return {};
    traffic = executor_.take_traffic();
    timer.add(traffic);
  }
  trace_.abandoned = executor_.is_abandoned();
  for (step::Run& run : batch.runs) {  // of sessions that were cancelled meanwhile
    Session& s = sessions_[run.session];
    if (s.state != SessionState::idle) continue;
    if (run.state == step::RunState::failed) {
      lose_kv(s);
      give_up(s, kv_.error());
    }
    run.state = step::RunState::dropped;
  }
  release_slots();
  if (trace_.abandoned) return traffic;
  if (trace_.n_logit_rows == 0) commit_rows();
  if (!run_logits()) return {};
  for (const step::Run& run : batch.runs) sessions_[run.session].end_input();
  return traffic;
}

// What no row waits for: clustering, the disk, checkpoints.
void Engine::run_idle() {
  if (device_lost()) return;
  const bool is_idle = trace_.n_rows == 0 && trace_.n_waiting == 0;
  if (is_idle && selector_.has_work()) {
    PhaseTimer timer(trace_, Phase::cluster, *clock_);
    if (const Result<void> worked = selector_.work(); !worked) return lose_device(worked.error());
  }
  kv_.prefixes().save_idle();
  if (kv_.is_moving()) kv_.pump(is_idle ? kIdleWaitNs : 0);
  kv_.tiers().store.log_state();
  checkpoint();
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
      consume_logits(sessions_[run->session], batch.positions[row], i);
    }
  }
  return true;
}

// Told at once, while the step goes on for others. The step is wanted while one of its sessions is.
// One with a row that selects is a single token of its session, and goes on to its end.
bool Engine::tick(step::Pause pause) {
  if (pause == step::Pause::between_ops) kv_.pump(0);
  if (!may_abandon_) return true;
  if (end_all_cancelled() && on_early_end_ != nullptr) on_early_end_(early_end_context_);
  return std::ranges::any_of(executor_.batch().runs, [&](const step::Run& run) {
    return run.selects || sessions_[run.session].state != SessionState::idle;
  });
}

// Sessions whose KV failed end what they do.
void Engine::commit_rows() {
  for (const step::Run& run : executor_.batch().runs) {
    if (run.state == step::RunState::dropped) continue;
    Session& s = sessions_[run.session];
    if (run.part != step::RunPart::own) {
      Result<void> committed = fail(kv_.error());
      if (run.state == step::RunState::runs && blend_.is_of(s.idx))
        committed = blend_.commit(blend_target(s), run, executor_.check_values(run));
      if (committed) continue;
      const bool is_device = committed.error().status == Status::device_lost;
      is_device ? lose_device(committed.error()) : lose_chunk(s, committed.error());
      continue;
    }
    if (run.state == step::RunState::failed) {
      const u32 n_taken = s.load.n_taken;
      const bool reads_on = select_config_.is_full() || s.generation.n_generated == 0;
      lose_kv(s);
      // What it had taken from others it computes now, as if that had not been there.
      if (reads_on && s.sequence.n_slots() < n_taken) continue;
      give_up(s, kv_.error());
      continue;
    }
    if (run.selects) s.approx.first_slot = std::min(s.approx.first_slot, s.sequence.n_slots());
    if (run.is_generated) {
      const u32 n_visible = executor_.batch().visible[run.row_begin];
      const u32 n_read = run.selects ? selector_.parts().n_read(run.session) : n_visible;
      s.generation.kv_reads.add(n_read, n_visible, run.selects);
      status_.counters.kv_reads.add(n_read, n_visible, run.selects);
    }
    blends(s) ? commit_blended(s, run.n_slots) : commit(s, run.n_slots);
    selector_.commit(run.session);
    const bool ends_turn = s.state == SessionState::generating &&
                           s.tokens.n_ids == s.tokens.turns.n_fed() &&
                           s.sequence.n_slots() == s.tokens.n_ids;
    if (ends_turn) selector_.end_turn(run.session, s.sequence, s.tokens.n_ids);
  }
}

void Engine::consume_logits(Session& s, u32 position, u32 logits_row) {
  const std::span<f32> logits = executor_.logits(logits_row);
  if (s.watch.fn != nullptr) s.watch.fn(s.watch.context, position, logits);
  if (s.state != SessionState::generating || position + 1 != s.tokens.n_ids) return;
  const Result<Sampled> sampled =
      executor_.batch().takes_best ? sample_best(executor_.summary(logits_row))
                                   : s.generation.draw(logits, s.tokens.ids.first(s.tokens.n_ids),
                                                       s.tokens.generated, scratch_);
  if (!sampled) return give_up(s, sampled.error());
  ++trace_.n_tokens_out;
  accept_token(s, *sampled);
}

}  // namespace tarn::engine
