#include "runtime/engine/batch_runner.h"

#include <algorithm>

namespace tarn::engine {

using step::RunKind;
using step::RunPart;
using step::RunState;

// ---- Collect ------------------------------------------------------------------------------------

// Check runs stand last in a batch; each leaves rows for the slices behind it.
void BatchRunner::collect(std::span<const step::Slice> slices) {
  step::Batch& batch = executor_.batch();
  batch.takes_best = true;  // while no session wants more of its logits
  const auto is_blended = [&](const step::Slice& slice) {
    return kv_.blends().are_next(o_.sessions[slice.session]);
  };
  const auto checks = [&](const step::Slice& slice) {
    return kv_.blends().of(o_.sessions[slice.session])->next_part() == RunPart::check;
  };
  u32 n_checked = 0;
  for (const step::Slice& slice : slices) {
    if (!is_blended(slice))
      add_slice(slice);
    else if (checks(slice))
      n_checked += slice.n_rows;
  }
  for (const step::Slice& slice : slices) {
    if (is_blended(slice) && !checks(slice)) add_blended(slice, slice.n_rows);
  }
  for (const step::Slice& slice : slices) {
    if (n_checked == 0 || !is_blended(slice) || !checks(slice)) continue;
    n_checked -= slice.n_rows;
    add_blended(slice, o_.plan.rows_max - batch.n_rows - n_checked);
  }
  read_embeddings();
  StepTrace& trace = current_.trace();
  trace.n_rows = batch.n_rows;
  trace.n_sequences = static_cast<u32>(batch.runs.size());
  trace.n_logit_rows = static_cast<u32>(batch.logit_rows.size());
  choose_selecting();
}

void BatchRunner::add_slice(const step::Slice& slice) {
  Session& s = o_.sessions[slice.session];
  const Result<void> writable = kv_.cache().reserve_frames(s.sequence, slice.n_rows);
  if (!writable) return s.give_up(writable.error(), o_.log, o_.scratch);
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
  step::Batch& batch = executor_.batch();
  batch.takes_best = batch.takes_best && takes_best;
  StepTrace& trace = current_.trace();
  (slice.kind == RunKind::decode ? trace.n_decode_rows : trace.n_prefill_rows) += slice.n_rows;
}

// Adds rows of a blend. Where no token between two chosen ones is left, KV is transplanted without
// a row.
void BatchRunner::add_blended(const step::Slice& slice, u32 rows_max) {
  step::Batch& batch = executor_.batch();
  Session& s = o_.sessions[slice.session];
  const Result<reuse::Blend::Rows> rows =
      kv_.blends().of(s)->take(Blends::target_of(s), slice.n_rows, rows_max);
  if (!rows && rows.error().status == Status::device_lost)
    return current_.lose_device(rows.error());
  if (!rows) return kv_.lose_chunk(s, rows.error());
  const step::Run run{
      .sequence = rows->sequence, .session = slice.session, .kind = slice.kind, .part = rows->part};
  current_.trace().n_prefill_rows += slice.n_rows;
  if (rows->part == RunPart::check) batch.check_layer = rows->check_layer;
  if (rows->part != RunPart::own) {
    executor_.add(run, rows->ids, 0);
    if (rows->first_id) batch.tokens[batch.runs.back().row_begin] = *rows->first_id;
    return;
  }
  if (!rows->slots.empty()) return executor_.add_at(run, rows->ids, rows->slots);
  ++current_.trace().n_waiting;
  kv_.commit_blended(s, static_cast<u32>(rows->ids.size()));
  s.end_input();  // it has no run that would
}

void BatchRunner::read_embeddings() {
  const Result<void> read = executor_.read_embeddings();
  if (read) return;
  if (!has_lost_model_) o_.log.error("%s", read.error().hint);
  has_lost_model_ = true;
  for (const step::Run& run : executor_.batch().runs)
    session_of(run).give_up(read.error(), o_.log, o_.scratch);
  executor_.clear();
  current_.trace().n_decode_rows = current_.trace().n_prefill_rows = 0;
}

// Decides which rows select.
void BatchRunner::choose_selecting() {
  const std::span<step::Run> runs = executor_.batch().runs;
  if (runs.empty()) return;
  PhaseTimer timer(current_.trace(), Phase::cluster, *o_.clock);
  for (step::Run& run : runs) {
    if (!run.is_generated) continue;
    const Session& s = session_of(run);
    const Result<bool> selects = kv_.selector().begin_row(
        run.session, s.sequence, s.sequence.n_slots() + 1, current_.trace().n_prefill_rows > 0);
    if (!selects && selects.error().status == Status::device_lost)
      return current_.lose_device(selects.error());
    if (!selects) {
      kv_.cache().note_failure(selects.error());
      run.state = RunState::failed;
      continue;
    }
    run.selects = *selects;
    if (run.selects)
      kv_.selector().parts().offloaded_groups(run.session, &run.offloaded_begin,
                                              &run.offloaded_end);
  }
}

// ---- Run ----------------------------------------------------------------------------------------

exec::Backend::Traffic BatchRunner::run() {
  if (executor_.batch().n_rows == 0 || current_.device_lost()) return {};
  executor_.note_kept_groups();
  kv_.cache().plan_step(executor_.batch(), kv_.blends().read_ahead());
  for (const step::Waiting& each : admission_.looked_ahead()) {
    const Session& s = o_.sessions[each.session];
    if (s.waits()) kv_.cache().plan_later(s.sequence);
  }
  exec::Backend::Traffic traffic{};
  if (!run_layers(&traffic)) return {};
  drop_ended();
  kv_.release_slots();
  StepTrace& trace = current_.trace();
  trace.abandoned = executor_.is_abandoned();
  if (trace.abandoned) return traffic;
  if (trace.n_logit_rows == 0) commit_rows();
  if (!run_logits()) return {};
  for (const step::Run& run : executor_.batch().runs) session_of(run).end_input();
  return traffic;
}

// Runs the layers. A GPU's part of a clustering is done meanwhile: beside a prompt only what has to
// be, since what takes longer than the GPU keeps a first token waiting.
bool BatchRunner::run_layers(exec::Backend::Traffic* traffic) {
  StepTrace& trace = current_.trace();
  PhaseTimer timer(trace, Phase::layers, *o_.clock);
  current_.let_end_sessions(executor_.may_abandon());
  executor_.run_layers(&current_);
  current_.let_end_sessions(false);
  const bool must_work = trace.n_prefill_rows == 0 || kv_.selector().has_units_due();
  if (o_.plan.gpu.choosing_rows() > 0 && must_work) {
    PhaseTimer beside(trace, Phase::cluster_beside, *o_.clock);
    const Result<void> worked = kv_.selector().work_beside();
    if (!worked) current_.lose_device(worked.error());
  }
  if (!current_.device_works()) return false;
  *traffic = executor_.take_traffic();
  timer.add(*traffic);
  return true;
}

// Rows of sessions that were cancelled meanwhile do not count.
void BatchRunner::drop_ended() {
  for (step::Run& run : executor_.batch().runs) {
    Session& s = session_of(run);
    if (s.state != SessionState::idle) continue;
    reuse::Blend* const blend = kv_.blends().of(s);
    if (run.state == RunState::failed && run.part == RunPart::own) {
      kv_.lose(s);
      s.give_up(kv_.cache().error(), o_.log, o_.scratch);
    } else if (run.state == RunState::failed && blend != nullptr) {
      (void)blend->lose_chunk();
    }
    run.state = RunState::dropped;
  }
}

// Returns false when the device was lost before all were computed. A decode step may be one graph,
// which ends with its first logits: its KV counts from then on.
bool BatchRunner::run_logits() {
  const step::Batch& batch = executor_.batch();
  StepTrace& trace = current_.trace();
  const step::Run* run = batch.runs.data();
  for (u32 begin = 0, n = 0; begin < trace.n_logit_rows; begin += n) {
    {
      PhaseTimer timer(trace, Phase::logits, *o_.clock);
      n = executor_.run_logits(begin);
      if (!current_.device_works()) return false;
      timer.add(executor_.take_traffic());
    }
    if (begin == 0) commit_rows();
    PhaseTimer timer(trace, Phase::sample, *o_.clock);
    for (u32 i = 0; i < n; ++i) {
      const u32 row = batch.logit_rows[begin + i];
      while (row >= run->row_begin + run->n_rows) ++run;
      if (run->state == RunState::runs)
        consume_logits(o_.sessions[run->session], batch.positions[row], i);
    }
  }
  return true;
}

// ---- Commit -------------------------------------------------------------------------------------

void BatchRunner::commit_rows() {
  for (const step::Run& run : executor_.batch().runs) {
    if (run.state == RunState::dropped) continue;
    if (run.part != RunPart::own) {
      commit_part(run);
    } else if (run.state == RunState::failed) {
      lose_run(run);
    } else {
      commit_run(run);
    }
  }
}

// Commits a run of a blend.
void BatchRunner::commit_part(const step::Run& run) {
  Session& s = session_of(run);
  reuse::Blend* const blend = kv_.blends().of(s);
  Result<void> committed = fail(kv_.cache().error());
  if (run.state == RunState::runs && blend != nullptr)
    committed = blend->commit(Blends::target_of(s), run, executor_.check_values(run));
  if (committed) return;
  const bool is_device = committed.error().status == Status::device_lost;
  is_device ? current_.lose_device(committed.error()) : kv_.lose_chunk(s, committed.error());
}

// Computes what the session had taken from others, as if that had not been there.
void BatchRunner::lose_run(const step::Run& run) {
  Session& s = session_of(run);
  const u32 n_taken = s.load.n_taken;
  const bool reads_on = o_.select.is_full() || s.generation.n_generated == 0;
  kv_.lose(s);
  if (reads_on && s.sequence.n_slots() < n_taken) return;
  s.give_up(kv_.cache().error(), o_.log, o_.scratch);
}

void BatchRunner::commit_run(const step::Run& run) {
  Session& s = session_of(run);
  method::Selector& selector = kv_.selector();
  if (run.selects) s.approx.first_slot = std::min(s.approx.first_slot, s.sequence.n_slots());
  if (run.is_generated) {
    const u32 n_visible = executor_.batch().visible[run.row_begin];
    const u32 n_read = run.selects ? selector.parts().n_read(run.session) : n_visible;
    s.generation.kv_reads.add(n_read, n_visible, run.selects);
    current_.trace().kv_reads.add(n_read, n_visible, run.selects);
  }
  kv_.blends().are_next(s) ? kv_.commit_blended(s, run.n_slots) : kv_.commit(s, run.n_slots);
  selector.commit(run.session);
  const bool ends_turn = s.state == SessionState::generating &&
                         s.tokens.n_ids == s.tokens.turns.n_fed() &&
                         s.sequence.n_slots() == s.tokens.n_ids;
  if (ends_turn) selector.end_turn(run.session, s.sequence, s.tokens.n_ids);
}

// ---- Sample -------------------------------------------------------------------------------------

void BatchRunner::consume_logits(Session& s, u32 position, u32 logits_row) {
  const std::span<f32> logits = executor_.logits(logits_row);
  if (s.watch.fn != nullptr) s.watch.fn(s.watch.context, position, logits);
  if (s.state != SessionState::generating || position + 1 != s.tokens.n_ids) return;
  const Result<Sampled> sampled =
      executor_.batch().takes_best ? sample_best(executor_.summary(logits_row))
                                   : s.generation.draw(logits, s.tokens.ids.first(s.tokens.n_ids),
                                                       s.tokens.generated, o_.scratch);
  if (!sampled) return s.give_up(sampled.error(), o_.log, o_.scratch);
  ++current_.trace().n_tokens_out;
  accept_token(s, *sampled);
}

// Appends what was sampled, and tells the reader.
void BatchRunner::accept_token(Session& s, Sampled sampled) {
  Generation& generation = s.generation;
  if (generation.n_generated < generation.forced.size())
    sampled.token = generation.forced[generation.n_generated];
  const bool fits = s.tokens.n_ids < o_.plan.context_tokens;
  if (fits) {
    s.tokens.generated.set(s.tokens.n_ids, s.tokens.n_ids + 1, true);
    s.tokens.ids[s.tokens.n_ids++] = sampled.token;
    s.run.is_admitted = s.sequence.reserve(1);  // else it waits, and runs before others
  }
  const std::optional<Finish> end = generation.accept(sampled, o_.clock->now_ns(), o_.scratch);
  if (!end && fits) return;
  admission_.note_end(s);
  s.finish(end.value_or(Finish::length), nullptr, o_.scratch);
}

}  // namespace tarn::engine
