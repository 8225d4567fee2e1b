#include "runtime/engine/places.h"

#include <algorithm>

#include "runtime/control/look_ahead.h"

namespace tarn::engine {

using step::Priority;

void Places::init_places(std::span<step::ShareRing::Account> shares,
                         std::span<step::Waiting> waiting, std::span<u32> n_running) {
  shares_.init(shares);
  waiting_ = waiting;
  n_running_ = n_running;
}

void Places::wait_for_place(Session& s) {
  if (!s.is_busy()) return s.rest();
  s.run.is_admitted = s.run.is_admitted && kv::KvCache::reserve_slots(s.sequence, s.tokens.n_ids);
  ++n_asked_;
  if (s.run.order == 0) s.run.order = n_asked_;
  admit();
}

Result<void> Places::check_queue(const Session& s) const {
  if (s.is_busy()) return {};
  u32 n_waiting = 0, n_of_tenant = 0;
  for (const Session& other : sessions_) {
    n_waiting += u32{other.waits()};
    n_of_tenant += u32{other.waits() && other.client.tenant_idx == s.client.tenant_idx};
  }
  if (n_waiting < plan_.waiting_max || n_of_tenant == 0) return {};
  const u64 wait_ns = place_time_.wait_estimate_ns(n_waiting + 1, plan_.running_max);
  return fail({.status = Status::would_block,
               .reason = Reason::busy_waiting,
               .hint = "too many sessions wait for their turn: try again after retry_ms (0: nobody "
                       "knows yet), or raise engine.waiting_max",
               .figures = {{{"waiting", n_waiting}, {"retry_ms", wait_ns / 1'000'000}}}});
}

// What has to change before somebody finds room who found none.
u64 Places::state_of_room() const {
  u64 n_holders = 0;
  for (const Session& s : sessions_)
    n_holders += u64{!s.run.is_admitted && s.sequence.n_reserved() > 0};
  const u64 n_places = static_cast<u64>(std::ranges::count_if(sessions_, &Session::is_admitted));
  return 1 + kv_.pool().groups_free() + (u64{blend_.is_free()} << 31) + (n_holders << 32) +
         (n_places << 42) + (n_asked_ << 52);
}

void Places::admit() {
  check_blend();
  if (blocked_at_ == state_of_room()) return;
  const bool is_blocked = give_places();
  look_ahead();
  if (is_blocked) blocked_at_ = state_of_room();
}

// Whether somebody found no room.
bool Places::give_places() {
  while (Session* const next = next_waiting()) {
    if (start(*next)) {
      note_overtaken(*next);
      continue;
    }
    if (any_runs()) return true;
    if (!next->can_cancel(scratch_)) return false;  // its end has to find room
    if (next->has_begun()) {
      next->finish(Finish::length, nullptr, scratch_);
      continue;
    }
    give_up(
        *next,
        {.status = Status::would_block,
         .reason = Reason::busy_kv,
         .hint = "other sessions hold the KV now: end or truncate one, or raise -c "
                 "(kv.context_tokens)",
         .figures = {{{"tokens", next->n_pending()}, {"groups_free", kv_.pool().groups_free()}}}});
  }
  return false;
}

// The last token is computed in any case, so no page that ends with it is cut.
void Places::look_ahead() {
  const auto n_groups = [&](const Session& s) {
    return (s.tokens.n_ids / plan_.group_shape.page_tokens + 1) * u64{model_.spec.n_cache_layers};
  };
  const u32 n_pin_sets = 2 * plan_.tiers.pin_set_groups, n_frames = plan_.kv.n_frames;
  control::LookAhead held(kv_.pool().groups_max()), read(n_frames - std::min(n_frames, n_pin_sets));
  for (const Session& s : sessions_) {
    if (!s.run.is_admitted) continue;
    (void)held.takes(n_groups(s));
    (void)read.takes(n_groups(s));
  }
  const std::span<step::Waiting> waiting = waiting_.first(n_waiting_);
  std::ranges::sort(waiting, [&](const step::Waiting& a, const step::Waiting& b) {
    return comes_before(sessions_[a.session], sessions_[b.session]);
  });
  n_ahead_ = 0;
  for (const step::Waiting& each : waiting) {
    Session& s = sessions_[each.session];
    if (!s.waits() || !held.takes(n_groups(s))) return;
    decide_loading(s);
    take_prefix(s, s.tokens.n_ids - 1);
    n_ahead_ += u32{read.takes(n_groups(s))};
  }
}

void Places::note_overtaken(const Session& placed) {
  const std::span<step::Waiting> waiting = waiting_.first(n_waiting_);
  const auto at = std::ranges::find(waiting, placed.idx, &step::Waiting::session);
  step::give_run_slot(waiting, static_cast<u32>(at - waiting.begin()));
  for (const step::Waiting& each : waiting) {
    if (each.session != placed.idx) sessions_[each.session].run.n_overtaken = each.n_overtaken;
  }
}

Session* Places::next_waiting() {
  Session* begun = nullptr;
  u32& n = n_waiting_;
  n = 0;
  bool is_interactive = false;
  for (Session& s : sessions_) {
    if (!s.waits() || waits_for_blend(s)) continue;
    if (s.has_begun() && (begun == nullptr || comes_before(s, *begun))) begun = &s;
    is_interactive = is_interactive || s.client.priority == Priority::interactive;
    waiting_[n++] = {.session = s.idx,
                     .tenant = s.client.tenant_idx,
                     .priority = s.client.priority,
                     .order = s.run.order,
                     .n_overtaken = s.run.n_overtaken};
  }
  if (n == 0 || begun != nullptr) return begun;
  std::ranges::fill(n_running_, 0u);
  for (const Session& s : sessions_) {
    const bool counts = !is_interactive || s.client.priority == Priority::interactive;
    n_running_[s.client.tenant_idx] += u32{s.run.is_admitted && counts};
  }
  const std::span<step::Waiting> waiting = waiting_.first(n);
  if (n > 1 || any_runs()) note_shared_prefixes(waiting);
  const auto at = step::next_admitted(waiting, n_running_, plan_.running_max, shares_);
  return at ? &sessions_[waiting[*at].session] : nullptr;
}

// What each of them would find, and whether a prompt that runs is about to compute more of it.
void Places::note_shared_prefixes(std::span<step::Waiting> waiting) {
  for (step::Waiting& each : waiting) {
    const Session& s = sessions_[each.session];
    const auto ids = s.tokens.ids.first(s.tokens.n_ids);
    const auto found = ids.first(std::min(s.tokens.n_ids, s.approx.chunks.first_token()));
    each.n_cached =
        std::max(s.sequence.n_slots(), kv_.prefixes().cached(s.client.root, found).n_tokens());
    each.is_deferred = std::ranges::any_of(sessions_, [&](const Session& other) {
      return other.run.is_admitted && other.n_computable() > 0 &&
             other.client.tenant_idx == s.client.tenant_idx &&
             step::is_deferred({ids, each.n_cached, s.client.priority},
                               {other.tokens.ids.first(other.tokens.n_ids),
                                other.sequence.n_slots(), other.client.priority},
                               plan_.group_shape.page_tokens);
    });
  }
}

// What was taken of others' pages is given back where the rest finds no room.
bool Places::start(Session& s) {
  if (s.state == SessionState::generating && s.n_pending() == 0) {  // its logits are wanted again
    if (!cut(s, s.tokens.n_ids - 1)) return false;
  }
  const std::span<const reuse::Chunk> chunks = s.chunks_ahead();
  if (!chunks.empty() && s.sequence.n_slots() > chunks.front().begin) {  // of a blend that ended
    if (!cut(s, chunks.front().begin)) return false;
  }
  const u32 n_slots = s.sequence.n_slots();
  const kv::Reused before = s.generation.reused;
  decide_loading(s);
  take_prefix(s, s.tokens.n_ids);
  if (!make_room(s)) {
    if (s.sequence.n_slots() > n_slots) cut_taken(s, n_slots);
    s.generation.reused = before;
    return false;
  }
  s.run.is_admitted = true;
  s.run.used_at = ++n_given_;
  s.run.admitted_ns = clock_->now_ns();
  if (s.generation.turn_ns < s.generation.fed_ns) s.generation.turn_ns = s.run.admitted_ns;
  s.end_input();  // where others have computed all of it
  if (s.run.is_admitted) pause_background(s);
  return true;
}

// An interactive session got a place that a background one has.
void Places::pause_background(const Session& placed) {
  if (placed.client.priority != Priority::interactive) return;
  while (std::ranges::count_if(sessions_, &Session::is_admitted) > plan_.running_max) {
    Session* last = nullptr;
    for (Session& s : sessions_) {
      if (!s.run.is_admitted || s.client.priority != Priority::background) continue;
      if (last == nullptr || comes_before(*last, s)) last = &s;
    }
    if (last == nullptr) return;
    last->run.is_admitted = false;
  }
}

}  // namespace tarn::engine
