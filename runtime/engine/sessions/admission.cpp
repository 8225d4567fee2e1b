#include "runtime/engine/sessions/admission.h"

#include <algorithm>

#include "runtime/control/look_ahead.h"

namespace tarn::engine {

using step::Priority;

void Admission::init(const Memory& memory) {
  shares_.init(memory.shares);
  waiting_ = memory.waiting;
  n_running_of_ = memory.n_running;
}

bool Admission::any_runs() const { return std::ranges::any_of(o_.sessions, &Session::is_admitted); }

u32 Admission::n_running() const {
  return static_cast<u32>(std::ranges::count_if(o_.sessions, &Session::is_admitted));
}

void Admission::ask(Session& s) {
  ++n_asked_;
  if (!s.is_busy()) return s.rest();
  s.run.is_admitted = s.run.is_admitted && kv::KvCache::reserve_slots(s.sequence, s.tokens.n_ids);
  if (s.run.order == 0) s.run.order = n_asked_;
}

// Counts a session that asked since the last give() as waiting only where no run slot is left for
// it.
Result<void> Admission::check_queue(const Session& s) const {
  if (s.is_busy()) return {};
  u32 n_waiting = 0, n_new = 0, n_of_tenant = 0;
  for (const Session& other : o_.sessions) {
    if (!other.waits()) continue;
    const bool is_new = other.run.order > n_seen_;
    n_new += u32{is_new};
    n_waiting += u32{!is_new};
    n_of_tenant += u32{other.client.tenant_idx == s.client.tenant_idx};
  }
  const u32 n_free = o_.plan.running_max - std::min(n_running(), o_.plan.running_max);
  n_waiting += n_waiting > 0 ? n_new : n_new - std::min(n_new, n_free);
  if (n_waiting < o_.plan.waiting_max || n_of_tenant == 0) return {};
  const u64 wait_ns = slot_time_.wait_estimate_ns(n_waiting + 1, o_.plan.running_max);
  return fail({.status = Status::would_block,
               .reason = Reason::busy_waiting,
               .hint = "too many sessions wait for their turn: try again after retry_ms (0: nobody "
                       "knows yet), or raise engine.waiting_max",
               .figures = {{{"waiting", n_waiting}, {"retry_ms", wait_ns / 1'000'000}}}});
}

void Admission::note_end(const Session& s) {
  slot_time_.observe(o_.clock->now_ns() - s.run.admitted_ns);
}

// Changes whenever a session may find room that found none.
u64 Admission::state_of_room() const {
  u64 n_holders = 0;
  for (const Session& s : o_.sessions)
    n_holders += u64{!s.run.is_admitted && s.sequence.n_reserved() > 0};
  return 1 + kv_.cache().pool().groups_free() + (u64{kv_.blends().n_free()} << 26) +
         (n_holders << 32) + (u64{n_running()} << 42) + (n_asked_ << 52);
}

void Admission::give() {
  kv_.blends().end_unused(o_.sessions);
  n_seen_ = n_asked_;
  if (blocked_at_ == state_of_room()) return;
  const bool is_blocked = give_slots();
  look_ahead();
  blocked_at_ = is_blocked ? state_of_room() : 0;
}

// Returns whether a session found no room.
bool Admission::give_slots() {
  while (Session* const next = next_waiting()) {
    if (start(*next)) {
      note_overtaken(*next);
      continue;
    }
    if (any_runs()) return true;
    if (next->has_begun()) {
      next->finish(Finish::length, nullptr, o_.scratch);
      continue;
    }
    next->give_up({.status = Status::would_block,
                   .reason = Reason::busy_kv,
                   .hint = "other sessions hold the KV now: end or truncate one, or raise -c "
                           "(kv.context_tokens)",
                   .figures = {{{"tokens", next->n_pending()},
                                {"groups_free", kv_.cache().pool().groups_free()}}}},
                  o_.log, o_.scratch);
  }
  return false;
}

// Looks ahead. The last token is computed in any case, so no page that ends with it is cut.
void Admission::look_ahead() {
  const auto n_groups = [&](const Session& s) {
    return (s.tokens.n_ids / o_.page_tokens() + 1) * u64{o_.model.spec.n_cache_layers};
  };
  const u32 n_pin_sets = 2 * o_.plan.tiers.pin_set_groups, n_frames = o_.plan.kv.n_frames;
  control::LookAhead held(kv_.cache().pool().groups_max()),
      read(n_frames - std::min(n_frames, n_pin_sets));
  for (const Session& s : o_.sessions) {
    if (!s.run.is_admitted) continue;
    (void)held.takes(n_groups(s));
    (void)read.takes(n_groups(s));
  }
  const std::span<step::Waiting> waiting = waiting_.first(n_waiting_);
  std::ranges::sort(waiting, [&](const step::Waiting& a, const step::Waiting& b) {
    return comes_before(o_.sessions[a.session], o_.sessions[b.session]);
  });
  n_ahead_ = 0;
  for (const step::Waiting& each : waiting) {
    Session& s = o_.sessions[each.session];
    if (!s.waits() || !held.takes(n_groups(s))) return;
    loads_.decide_loading(s);
    kv_.take_prefix(s, s.tokens.n_ids - 1);
    n_ahead_ += u32{read.takes(n_groups(s))};
  }
}

void Admission::note_overtaken(const Session& admitted) {
  const std::span<step::Waiting> waiting = waiting_.first(n_waiting_);
  const auto at = std::ranges::find(waiting, admitted.idx, &step::Waiting::session);
  step::give_run_slot(waiting, static_cast<u32>(at - waiting.begin()));
  for (const step::Waiting& each : waiting) {
    if (each.session != admitted.idx) o_.sessions[each.session].run.n_overtaken = each.n_overtaken;
  }
}

Session* Admission::next_waiting() {
  Session* begun = nullptr;
  u32& n = n_waiting_;
  n = 0;
  bool is_interactive = false;
  for (Session& s : o_.sessions) {
    if (!s.waits() || !s.can_cancel(o_.scratch) || kv_.blends().lacks(s)) continue;
    if (s.has_begun() && (begun == nullptr || comes_before(s, *begun))) begun = &s;
    is_interactive = is_interactive || s.client.priority == Priority::interactive;
    waiting_[n++] = {.session = s.idx,
                     .tenant = s.client.tenant_idx,
                     .priority = s.client.priority,
                     .order = s.run.order,
                     .n_overtaken = s.run.n_overtaken};
  }
  const bool goes_on = begun != nullptr && (begun->client.priority == Priority::interactive ||
                                            (!is_interactive && n_running() < o_.plan.running_max));
  if (n == 0 || goes_on) return begun;
  std::ranges::fill(n_running_of_, 0u);
  for (const Session& s : o_.sessions) {
    const bool counts = !is_interactive || s.client.priority == Priority::interactive;
    n_running_of_[s.client.tenant_idx] += u32{s.run.is_admitted && counts};
  }
  const std::span<step::Waiting> waiting = waiting_.first(n);
  if (n > 1 || any_runs()) note_shared_prefixes(waiting);
  const auto at = step::next_admitted(waiting, n_running_of_, o_.plan.running_max, shares_);
  return at ? &o_.sessions[waiting[*at].session] : nullptr;
}

// Notes what each of them would find, and whether a prompt that runs is about to compute more of
// it.
void Admission::note_shared_prefixes(std::span<step::Waiting> waiting) {
  for (step::Waiting& each : waiting) {
    const Session& s = o_.sessions[each.session];
    const auto ids = s.tokens.ids.first(s.tokens.n_ids);
    const auto found = ids.first(std::min(s.tokens.n_ids, s.approx.chunks.first_token()));
    each.n_cached = std::max(s.sequence.n_slots(),
                             kv_.cache().prefixes().cached(s.client.root, found).n_tokens());
    each.is_deferred = std::ranges::any_of(o_.sessions, [&](const Session& other) {
      return other.run.is_admitted && other.n_computable() > 0 &&
             other.client.tenant_idx == s.client.tenant_idx &&
             step::is_deferred({ids, each.n_cached, s.client.priority},
                               {other.tokens.ids.first(other.tokens.n_ids),
                                other.sequence.n_slots(), other.client.priority},
                               o_.page_tokens());
    });
  }
}

// Starts the session. Pages that it took of others are given back where the rest finds no room.
bool Admission::start(Session& s) {
  if (s.state == SessionState::generating && s.n_pending() == 0) {  // its logits are wanted again
    if (!kv_.cut(s, s.tokens.n_ids - 1)) return false;
  }
  const std::span<const reuse::Chunk> chunks = s.chunks_ahead();
  if (!chunks.empty() && s.sequence.n_slots() > chunks.front().begin) {  // of a blend that ended
    if (!kv_.cut(s, chunks.front().begin)) return false;
  }
  const u32 n_slots = s.sequence.n_slots();
  const kv::Reused before = s.generation.reused;
  loads_.decide_loading(s);
  kv_.take_prefix(s, s.tokens.n_ids);
  if (!kv_.make_room(s)) {
    if (s.sequence.n_slots() > n_slots) kv_.cut_taken(s, n_slots);
    s.generation.reused = before;
    return false;
  }
  s.run.is_admitted = true;
  s.run.used_at = ++n_given_;
  s.run.admitted_ns = o_.clock->now_ns();
  if (s.generation.turn_ns < s.generation.fed_ns) s.generation.turn_ns = s.run.admitted_ns;
  s.end_input();  // where others have computed all of it
  if (s.run.is_admitted) pause_background(s);
  return true;
}

// Pauses a background session whose run slot an interactive one got.
void Admission::pause_background(const Session& admitted) {
  if (admitted.client.priority != Priority::interactive) return;
  while (n_running() > o_.plan.running_max) {
    Session* last = nullptr;
    for (Session& s : o_.sessions) {
      if (!s.run.is_admitted || s.client.priority != Priority::background) continue;
      if (last == nullptr || comes_before(*last, s)) last = &s;
    }
    if (last == nullptr) return;
    last->run.is_admitted = false;
  }
}

}  // namespace tarn::engine
