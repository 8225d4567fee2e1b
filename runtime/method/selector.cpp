#include "runtime/method/selector.h"

#include <utility>

#include "platform/base/assert.h"

namespace tarn::method {

void Selector::init(const SelectorArgs& args) {
  memory_.init(args);
  jobs_.init();
}

void Selector::forget(u32 idx) {
  if (!is_on()) return;
  IndexSession& s = memory_.session(idx);
  jobs_.drop_job(s);
  s.next = {};
  s.turn_end = 0;
  saved_.erase(s, std::exchange(s.used_key, {}));
  s.life.forget();
  for (kv::SlotCache& cache : memory_.caches(idx)) cache.clear();
  memory_.order().forget(s);
  s.named_key = {};
}

void Selector::truncate(u32 idx, u32 n_tokens) {
  if (!is_on()) return;
  IndexSession& s = memory_.session(idx);
  u32 cache_head = 0;
  for (kv::SlotCache& cache : memory_.caches(idx))
    memory_.order().truncate_cache(s, cache_head++, n_tokens, cache);
  memory_.order().truncate(s, n_tokens);
  if (n_tokens < s.turn_end) s.turn_end = 0;
  s.waits_at = 0;
  const u32 n_rows_used = s.life.n_rows_used();
  const bool was_whole = !s.is_restoring && !jobs_.overwrites(s);
  const bool keeps = s.life.truncate(n_tokens), uses = keeps && !s.life.is_dense();
  if (uses && !was_whole) {
    if (!s.is_restoring) jobs_.begin_restoring(s);
    return;
  }
  const bool keeps_job = keeps && (uses || n_rows_used == 0) && !s.is_restoring &&
                         s.n_rows == s.life.n_rows_clustering();
  const store::Key key = uses ? store::Key{} : std::exchange(s.used_key, {});
  if (!keeps_job) jobs_.drop_job(s);
  if (keeps && !uses && n_rows_used > 0 && was_whole) {
    // An activation that is undone leaves its index, finished.
    s.n_rows = n_rows_used;
    s.target = s.heads;
    s.n_units_done = jobs_.n_units();
    s.job_key = key;
  } else {
    saved_.erase(s, key);
    if (keeps && !keeps_job) jobs_.await_clustering(s);
  }
  if (keeps) truncate_heads(s);
}

// Cuts, of the index in use and of the job's, what the middle has lost. A row that did not count
// may have coded more than the clustered rows of either.
void Selector::truncate_heads(IndexSession& s) {
  const bool has_own = jobs_.n_units() == 0 || !s.life.is_dense() || s.target == s.heads;
  const u32 middle_end = s.life.ranges().middle_end;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    if (has_own) s.heads[head]->truncate(middle_end);
    if (s.target != nullptr) s.target[head]->truncate(middle_end);
  }
  s.n_coded = std::min(s.n_coded, middle_end - s.life.ranges().middle_begin);
}

void Selector::copy(u32 from, u32 to, const kv::Sequence& sequence) {
  if (!is_on()) return;
  const IndexSession& source = memory_.session(from);
  IndexSession& s = memory_.session(to);
  for (kv::SlotCache& cache : memory_.caches(to)) cache.clear();
  memory_.order().forget(s);  // they follow what was there before
  jobs_.drop_job(s);
  s.next = {};
  s.life = source.life;
  s.sequence = &sequence;
  s.turn_end = source.turn_end;
  s.used_key = {};  // what was written has one owner
  if (!s.life.is_dense() && (source.is_restoring || jobs_.overwrites(source)))
    return jobs_.begin_restoring(s);
  const bool has_first = s.life.is_dense() && s.life.is_clustering() &&
                         jobs_.is_made(source, s.life.n_rows_clustering());
  if (has_first) {
    s.n_rows = source.n_rows;
    s.target = s.heads;
    s.n_units_done = jobs_.n_units();
  } else {
    jobs_.await_clustering(s);  // anew, with the same outcome
  }
  if (s.life.is_dense() && !has_first) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    s.heads[head]->copy_from(*source.heads[head]);
  }
  s.n_coded = source.n_coded;
  s.n_counted = source.n_counted;
  if (jobs_.n_units() > 0 && !s.life.is_dense()) args_.device->copy(from, to);
}

bool Selector::has_index(u32 idx) const {
  return is_on() &&
         (!memory_.session(idx).life.is_dense() || memory_.session(idx).life.is_clustering());
}

KeptIndex Selector::kept(u32 idx) const {
  if (!has_index(idx)) return {};
  const IndexSession& s = memory_.session(idx);
  return {.life = s.life.kept(), .turn_end = s.turn_end, .key = s.used_key};
}

// Returns whether the turn may have waited for what is under way.
static bool holds_together(const KeptIndex& kept, u32 n_slots) {
  if (kept.turn_end == 0) return true;
  const KeptLife& life = kept.life;
  return life.rows_pending != 0 && kept.turn_end <= u64{n_slots} + 1 &&
         kept.turn_end > life.middle_end && kept.turn_end >= life.trigger_at;
}

bool Selector::restore(u32 idx, const kv::Sequence& sequence, const KeptIndex& kept, u32 n_slots,
                       u32 n_tokens) {
  if (!is_on()) return false;
  forget(idx);
  IndexSession& s = memory_.session(idx);
  if (!holds_together(kept, n_slots)) return false;
  if (!s.life.restore(kept.life, n_slots, n_tokens)) return false;
  s.sequence = &sequence;
  s.turn_end = kept.turn_end;
  s.used_key = s.named_key = kept.key;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) s.heads[head]->forget();
  if (!s.life.is_dense() && jobs_.n_units() > 0) {
    jobs_.begin_restoring(s);
  } else {
    jobs_.await_clustering(s);
  }
  return true;
}

void Selector::commit(u32 idx) {
  if (!is_on() || memory_.session(idx).next.heads == nullptr) return;
  IndexSession& s = memory_.session(idx);
  const bool activates = s.next.activates;
  s.life = s.next.life;
  s.turn_end = 0;
  s.next.heads = nullptr;
  if (activates) {
    jobs_.take_over(s);
    const store::Key before = std::exchange(s.used_key, std::exchange(s.job_key, {}));
    jobs_.drop_job(s);
    saved_.erase(s, before);
  }
  if (s.n_rows != s.life.n_rows_clustering()) jobs_.await_clustering(s);
}

// Sends it to the device that chooses by it.
Result<void> Selector::send_index(IndexSession& s) {
  if (jobs_.n_units() == 0) return {};
  TARN_CHECK(args_.device->put(memory_.idx_of(s), memory_.regions_of(s.heads)));
  const TokenRanges ranges = s.life.ranges();
  s.n_coded = s.n_counted = s.heads[0]->n_taken(ranges.middle_end) - ranges.middle_begin;
  return {};
}

void Selector::end_turn(u32 idx, const kv::Sequence& sequence, u32 n_tokens) {
  if (!is_on()) return;
  IndexSession& s = memory_.session(idx);
  s.sequence = &sequence;
  s.turn_end = n_tokens;
  if (s.life.is_clustering())
    return;  // its activation may be due: the next row's proposal has both
  while (s.life.advance(n_tokens) != IndexEvent::none) {
  }
  s.turn_end = 0;
  if (!s.is_restoring) jobs_.await_clustering(s);
}

// Proposes what the turn's end, if one was left, and the row of this token make of the life. An
// index that another one replaces before any row reads it is not made.
void Selector::propose(IndexSession& s, u32 n_tokens) {
  s.next = {.life = s.life};
  for (const u32 n : {s.turn_end, n_tokens}) {
    if (n == 0) continue;
    IndexEvent event = IndexEvent::none;
    while ((event = s.next.life.advance(n)) != IndexEvent::none) {
      s.next.activates = s.next.activates || event == IndexEvent::activate;
    }
  }
  const u32 n_rows = s.next.life.n_rows_used();
  if (s.next.activates && !s.is_restoring && s.n_rows != n_rows) jobs_.start_job(s, n_rows);
}

void Selector::begin_step(std::span<const step::Ready> ready) {
  if (!is_on()) return;
  jobs_.begin_step();
  for (const step::Ready& each : ready) {
    IndexSession& s = memory_.session(each.session);
    jobs_.note_ready(s);
    s.next = {};
  }
}

Result<bool> Selector::make_index(u32 idx, u32 n_tokens, bool beside_prompt) {
  if (!is_on()) return false;
  IndexSession& s = memory_.session(idx);
  if (args_.device->is_on_device()) return false;
  s.is_stuck = false;
  propose(s, n_tokens);
  const bool is_due = s.is_restoring || s.next.activates;
  if (s.waits_at != n_tokens) {
    const bool can_begin = !is_due && jobs_.can_work(s, is_due);
    s.waits_at = n_tokens;
    s.n_units_due = can_begin ? jobs_.units_of_step(s, n_tokens - 1, beside_prompt) : 0;
  }
  if (is_due ? !jobs_.has_units_left(s) : s.n_units_due == 0) return false;
  const bool was_restoring = s.is_restoring;
  TARN_CHECK(jobs_.run_units(s, 1, is_due));
  if (was_restoring) return true;  // what was under way begins behind that
  return is_due ? jobs_.has_units_left(s) : --s.n_units_due > 0;
}

Result<bool> Selector::begin_row(u32 idx, const kv::Sequence& sequence, u32 n_tokens,
                                 bool beside_prompt) {
  if (!is_on()) return false;
  IndexSession& s = memory_.session(idx);
  s.sequence = &sequence;
  s.is_stuck = false;
  s.n_units_due = s.waits_at = 0;
  // Nothing is left to be made here, but with a device.
  if (s.is_restoring) TARN_CHECK(jobs_.run_units(s, 2 * jobs_.n_units(), /*is_due=*/true));
  propose(s, n_tokens);
  if (s.next.activates) TARN_CHECK(jobs_.run_units(s, jobs_.n_units(), /*is_due=*/true));
  const bool activates = s.next.activates, selects = !s.next.life.is_dense();
  s.next.heads = activates && s.target != nullptr ? s.target : s.heads;
  if (!args_.device->is_on_device()) return selects;
  commit(idx);
  if (activates) TARN_CHECK(send_index(s));
  if (jobs_.can_work(s, /*is_due=*/false))
    s.n_units_due = jobs_.units_of_step(s, n_tokens, beside_prompt);
  return selects;
}

IndexSession* Selector::next_to_work() const {
  for (u32 idx = 0; idx < args_.shape->in.sessions_max; ++idx) {
    if (jobs_.can_work(memory_.session(idx), /*is_due=*/false)) return &memory_.session(idx);
  }
  return nullptr;
}

Result<void> Selector::work() {
  IndexSession* const s = next_to_work();
  if (s == nullptr) return {};
  const Result<void> worked = jobs_.run_units(*s, 1, /*is_due=*/false);
  s->is_stuck = !worked.has_value();
  const bool is_lost = !worked && worked.error().status == Status::device_lost;
  return is_lost ? worked : Result<void>();
}

bool Selector::has_units_due() const {
  for (u32 idx = 0; is_on() && idx < args_.shape->in.sessions_max; ++idx) {
    if (memory_.session(idx).n_units_due > 0) return true;
  }
  return false;
}

Result<void> Selector::work_beside() {
  bool was_due = false;
  for (u32 idx = 0; idx < args_.shape->in.sessions_max; ++idx) {
    IndexSession& s = memory_.session(idx);
    const u32 n_due = std::exchange(s.n_units_due, 0);
    if (n_due == 0 || !jobs_.can_work(s, /*is_due=*/false)) continue;
    was_due = true;
    TARN_CHECK(jobs_.run_units(s, n_due, /*is_due=*/false));
  }
  return was_due ? Result<void>() : work();
}

store::Key Selector::codebooks_key(u32 idx) const {
  return is_on() ? memory_.session(idx).used_key : store::Key{};
}

void Selector::note_named(u32 idx, const store::Key& key) {
  if (!is_on()) return;
  IndexSession& s = memory_.session(idx);
  const store::Key before = std::exchange(s.named_key, key);
  if (!(before == codebooks_key(idx)) && !(before == s.job_key)) saved_.erase(s, before);
}

StepParts::Spent Selector::take_spent() {
  StepParts::Spent spent = parts_.take_spent();
  spent.n_units = jobs_.take_n_units();
  return spent;
}

}  // namespace tarn::method
