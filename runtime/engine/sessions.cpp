// The calls on sessions, and what a step does to one. Saved sessions: sessions_saved.cpp.
#include "runtime/engine/sessions.h"

#include <algorithm>
#include <array>
#include <optional>

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

Unexpected refused(const char* hint, Figure a = {}, Figure b = {}) {
  return fail({.status = Status::invalid_request, .hint = hint, .figures = {{a, b}}});
}

// Of KV that was just taken: the first n_slots stay, or the whole pages of them.
void cut_taken(kv::KvCache& kv, kv::Sequence& sequence, u32 n_slots) {
  if (kv.truncate(sequence, n_slots)) return;
  const u32 page_tokens = kv.pool().shape().page_tokens;
  const bool is_cut = sequence.truncate(n_slots / page_tokens * page_tokens);
  TARN_ASSERT(is_cut);  // between two pages
}

// Rows of an input go together. A restored session may have generated tokens to compute again. The
// last one goes alone, as it did before, since an index may begin with it. No index had begun
// before the others, or all of their KV would have been saved.
u32 n_rows_at_once(const Session& s) {
  const u32 n_slots = s.sequence.n_slots(), n_fed = s.turns.n_fed();
  return n_slots < n_fed ? n_fed - n_slots : std::max(s.n_pending() - 1, 1u);
}

}  // namespace

Unexpected no_slots_left(const kv::GroupPool& pool, u64 n_tokens) {
  return fail({.status = Status::would_block,
               .hint = "other sessions hold the KV now: end or truncate one, or raise -c "
                       "(kv.context_tokens)",
               .figures = {{{"tokens", n_tokens}, {"groups_free", pool.groups_free()}}}});
}

void Session::end_cancelled(const GenerationScratch& scratch) {
  if (generation.n_generated == 0 || state == SessionState::computing) {
    n_ids = std::max(sequence.n_slots(), n_settled);
    turns.truncate(n_ids);
    chat.n_ids = std::min(chat.n_ids, n_ids);
  }
  if (state == SessionState::generating) finish(Finish::cancelled, Status::ok, scratch);
  state = SessionState::idle;
  cancel.store(false);
}

void Session::finish(Finish reason, Status status, const GenerationScratch& scratch) {
  generation.finish(reason, status, scratch);
  state = SessionState::idle;
  saved.stop(/*has_answer=*/generation.n_generated > 0);
}

Result<void> check_ids(const model::ModelSpec& spec, std::span<const u32> ids) {
  for (const u32 id : ids) {
    if (id < spec.n_vocab) continue;
    return refused("a token is not in the vocabulary", {"token", id}, {"n_vocab", spec.n_vocab});
  }
  return {};
}

Result<SessionIdx> Sessions::create_session(const SessionArgs& args) {
  for (SessionIdx idx = 0; idx < sessions_.size(); ++idx) {
    Session& s = sessions_[idx];
    if (s.state != SessionState::free) continue;
    s.state = SessionState::idle;
    s.n_ids = 0;
    s.turns.start_over(0);
    s.turn_begin = 0;
    s.n_settled = 0;
    s.last_error = {};
    s.generation.begin({}, text_.tokenizer());
    s.generation.fed_ns = 0;
    s.generation.reused = {};
    s.cancel.store(false);
    s.on_logits = nullptr;
    archive_.forget(s.saved);
    s.saved.tenant = store::tenant_key(kv_.prefixes().index().secret(), args.tenant);
    s.priority = args.priority;
    s.n_taken = 0;
    s.chat = {};
    s.root = reuse::identity_key(kv_.prefixes().index().secret(),
                                 reuse::of_tenant(identity_, s.saved.tenant));
    s.first_approx_slot = Session::kNone;
    selector_.forget(idx);
    return idx;
  }
  return fail({.status = Status::would_block,
               .hint = "all sessions are in use: destroy one, or raise engine.sessions_max",
               .figures = {{{"sessions_max", plan_.sessions_max}}}});
}

void Sessions::destroy_session(SessionIdx idx) {
  Session& s = sessions_[idx];
  TARN_ASSERT(s.state != SessionState::free);
  if (s.saved.name_bytes > 0) archive_.checkpoint_last(view_of(s));
  archive_.forget(s.saved);
  s.sequence.clear();
  selector_.forget(idx);
  s.n_ids = 0;
  s.state = SessionState::free;
}

Result<void> Sessions::begin_feed(SessionIdx idx, std::span<const u32> ids, u32 n_kept_max) {
  Session& s = sessions_[idx];
  if (s.state == SessionState::generating) {
    return refused("the session is generating: wait for its end, or cancel it");
  }
  if (s.state == SessionState::computing && s.cancel.load()) s.end_cancelled(scratch_);
  const u64 room_tokens = plan_.context_tokens - std::min(s.n_ids, n_kept_max);
  if (ids.size() > room_tokens) {  // before the ids are read: a wrong count leads out of them
    return refused(
        "the session would be longer than the context: shorten the text, or raise -c "
        "(kv.context_tokens)",
        {"tokens", ids.size()}, {"room", room_tokens});
  }
  TARN_CHECK(check_ids(model_.spec, ids));

  // With exact answers, cuts approximate KV off. Its tokens become part of the input that comes, as
  // if the session had been cut there and they were fed.
  if (s.state != SessionState::idle || !select_config_.exact_answers ||
      s.sequence.n_slots() <= s.first_approx_slot) {
    return {};
  }
  const u32 begin = s.first_approx_slot;
  s.sequence.abandon();
  archive_.drop(s.saved);
  const Result<void> is_cut = cut(s, begin);
  (void)kv::KvCache::reserve_slots(s.sequence, s.n_ids);
  TARN_CHECK(is_cut);
  selector_.truncate(idx, begin);
  s.turns.truncate(begin);
  s.turns.feed(begin, s.n_ids - begin);
  s.saved.n_slots = std::min(s.saved.n_slots, begin);
  return {};
}

Result<void> Sessions::feed(SessionIdx idx, std::span<const u32> ids) {
  Session& s = sessions_[idx];
  TARN_CHECK(begin_feed(idx, ids, /*n_kept_max=*/plan_.context_tokens));
  if (!kv_.reserve_slots(s.sequence, s.n_ids)) return no_slots_left(kv_.pool(), ids.size());
  std::copy(ids.begin(), ids.end(), s.ids.begin() + s.n_ids);
  const u32 n_slots = s.sequence.n_slots();
  const u32 n_ids = s.n_ids + static_cast<u32>(ids.size());
  const kv::Reused before = s.generation.fed_ns == 0 ? kv::Reused{} : s.generation.reused;
  s.generation.reused = before;
  take_prefix(s, n_ids);
  if (!kv::KvCache::reserve_slots(s.sequence, n_ids)) {
    if (s.sequence.n_slots() > n_slots) cut_taken(kv_, s.sequence, n_slots);
    s.generation.reused = before;
    (void)kv::KvCache::reserve_slots(s.sequence, s.n_ids);
    return no_slots_left(kv_.pool(), ids.size());
  }
  s.last_error = {};
  if (s.state == SessionState::idle) {
    s.cancel.store(false);  // one that came too late for what it meant
    s.n_settled = s.n_ids;
    s.turn_begin = s.n_ids;
  }
  s.turns.feed(s.n_ids, static_cast<u32>(ids.size()));
  s.n_ids = n_ids;
  s.saved.ask_more();
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  if (s.generation.fed_ns == 0) s.generation.fed_ns = clock_->now_ns();
  return {};
}

Result<void> Sessions::generate(SessionIdx idx, const GenerateParams& params) {
  Session& s = sessions_[idx];
  if (s.state == SessionState::generating) return refused("the session is generating already");
  if (s.n_ids == 0) return refused("nothing was fed: feed at least one token (BOS, say) first");
  TARN_CHECK(validate(params.sampler, model_.spec.n_vocab));
  TARN_CHECK(s.generation.set_stops(params.stops));
  if (!kv::KvCache::reserve_slots(s.sequence, s.n_ids))
    return no_slots_left(kv_.pool(), s.n_pending());
  if (s.n_pending() == 0) {  // a cut behind a computed token: its logits are wanted again
    TARN_CHECK(cut(s, s.n_ids - 1));
    if (!s.sequence.reserve(s.n_pending())) {
      return fail({.status = Status::would_block,
                   .hint = "no KV group is free to redo the last token: end another session"});
    }
  }
  if (s.generation.fed_ns == 0) s.generation.reused = {};
  s.generation.begin(params, text_.tokenizer());
  if (s.generation.fed_ns == 0) s.generation.fed_ns = clock_->now_ns();
  if (s.state == SessionState::idle) s.n_settled = s.n_ids;
  s.cancel.store(false);
  s.last_error = {};  // computed after all, or an event says why not
  s.saved.ask_more();
  s.state = SessionState::generating;
  return {};
}

Result<void> Sessions::truncate(SessionIdx idx, u32 n_tokens) {
  Session& s = sessions_[idx];
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
  s.n_ids = s.n_settled = n_tokens;
  s.chat.n_ids = std::min(s.chat.n_ids, n_tokens);
  s.generation.reused.bound(n_tokens);
  s.turns.truncate(n_tokens);
  s.turn_begin = std::min(s.turn_begin, n_tokens);
  s.saved.n_slots = std::min(s.saved.n_slots, n_tokens);
  s.saved.ask_more();
  s.last_error = {};
  const bool computes = kv::KvCache::reserve_slots(s.sequence, s.n_ids) && s.n_computable() > 0;
  s.state = computes ? SessionState::computing : SessionState::idle;
  return {};
}

Result<SessionIdx> Sessions::fork(SessionIdx idx) {
  Session& source = sessions_[idx];
  if (source.state != SessionState::idle) {
    return refused("only an idle session can be forked: wait until it has computed and generated");
  }
  TARN_TRY(const SessionIdx copy_idx, create_session());
  Session& copy = sessions_[copy_idx];
  if (const Result<void> is_copied = kv_.fork(source.sequence, copy.sequence, source.n_pending());
      !is_copied) {
    destroy_session(copy_idx);
    return fail(is_copied.error());
  }
  std::copy_n(source.ids.begin(), source.n_ids, copy.ids.begin());
  copy.n_ids = source.n_ids;
  copy.saved.tenant = source.saved.tenant;
  copy.root = source.root;
  copy.turns = source.turns;
  copy.turn_begin = source.turn_begin;
  copy.first_approx_slot = source.first_approx_slot;
  copy.last_error = source.last_error;
  copy.chat = source.chat;
  selector_.copy(idx, copy_idx, copy.sequence);
  return copy_idx;
}

// The pages of its first n_ids tokens that somebody has computed already. Not where every row's
// logits are wanted, and not behind KV that does not follow from its tokens. The last token's row
// is computed in any case: its logits are wanted. An index may know of a tail that is not full.
void Sessions::take_prefix(Session& s, u32 n_ids) {
  const u32 page_tokens = plan_.group_shape.page_tokens, n_before = s.sequence.n_slots();
  if (s.on_logits != nullptr || s.first_approx_slot != Session::kNone) return;
  if (!select_config_.is_full() && n_before % page_tokens != 0) return;
  kv::Reused reused = kv_.prefixes().take(s.sequence, s.root, s.ids.first(n_ids));
  if (reused.n_tokens() == 0) return;
  if (s.sequence.n_slots() == n_ids) {
    const bool is_here = kv_.prefixes().is_here(s.sequence, n_ids / page_tokens - 1);
    cut_taken(kv_, s.sequence,
              is_here ? n_ids - 1 : n_ids - page_tokens);  // nobody waits for the disk
  }
  const u32 n_taken = std::max(s.sequence.n_slots(), n_before) - n_before;
  reused.n_from_disk = std::min(reused.n_from_disk, n_taken);
  reused.n_from_memory = n_taken - reused.n_from_disk;
  s.generation.reused += reused;
  s.n_taken = std::max(s.n_taken, s.sequence.n_slots());
}

// ---- What a step does -----------------------------------------------------------------------

std::span<Ready> Sessions::ready_sessions() {
  u32 n = 0;
  for (Session& s : sessions_) {
    if (s.n_ready_rows(scratch_) > plan_.group_shape.page_tokens) {
      take_prefix(s, s.n_ids - 1);  // a last row is left
      const bool reserved = kv::KvCache::reserve_slots(s.sequence, s.n_ids);
      TARN_ASSERT(reserved);  // what the pages took the place of
    }
    const u32 n_rows = s.n_ready_rows(scratch_);
    if (n_rows == 0) continue;
    Ready& ready = ready_[n++];
    ready = {.session = s.idx, .n_rows = n_rows};
    if (!select_config_.is_full()) ready.n_rows = std::min(n_rows, n_rows_at_once(s));
    if (s.state != SessionState::generating || n_rows > 1) continue;
    ready.kind = s.generation.n_generated > 0 ? RunKind::decode : RunKind::first;
    ready.is_generated = s.sequence.n_slots() >= s.turns.n_fed();
  }
  return ready_.first(n);
}

bool Sessions::have_work() const {
  return std::ranges::any_of(sessions_, [this](const Session& s) {
    return s.n_ready_rows(scratch_) > 0 ||
           archive_.is_due_now(s.saved, s.sequence.n_slots(), s.state == SessionState::idle) ||
           (s.cancel.load() && s.can_cancel(scratch_));
  });
}

void Sessions::accept_token(Session& s, Sampled sampled) {
  Generation& generation = s.generation;
  if (generation.n_generated < generation.forced.size()) {
    sampled.token = generation.forced[generation.n_generated];
  }
  const bool has_place = s.n_ids < plan_.context_tokens && s.sequence.reserve(1);
  if (has_place) s.ids[s.n_ids++] = sampled.token;
  const std::optional<Finish> end = generation.accept(sampled, clock_->now_ns(), scratch_);
  if (end || !has_place) s.finish(end.value_or(Finish::length), Status::ok, scratch_);
}

void Sessions::commit(Session& s, u32 n_rows) {
  const u32 n_before = s.sequence.n_slots();
  s.sequence.commit(n_rows);
  const u32 page_tokens = plan_.group_shape.page_tokens;
  const u32 n_exact = std::min(s.sequence.n_slots(), s.first_approx_slot);
  kv_.prefixes().list(s.sequence, s.root, s.ids, n_before / page_tokens, n_exact / page_tokens);
  archive_.name_private(s.sequence, s.ids, n_before, s.first_approx_slot);
}

void Sessions::give_up(Session& s, const Error& error) {
  std::array<char, 512> text{};
  format_error(error, text.data(), text.size());
  log_.warning("session %u: %s", s.idx, text.data());
  s.last_error = {error.status, error.hint};
  if (s.state == SessionState::generating) return s.finish(Finish::error, error.status, scratch_);
  s.state = SessionState::idle;
  s.generation.fed_ns = 0;
}

// Part of the session's KV could not be read back. The KV before it stays, and so do the tokens:
// the next generation computes them anew. Where rows select, no KV stays, since an index is made of
// exact KV alone. False where other sessions hold the groups that it shared with them: then it has
// no KV, and reserve_slots() finds room for its tokens once those sessions have ended.
bool Sessions::lose_kv(Session& s) {
  const u32 n_slots = s.sequence.n_slots();
  s.sequence.abandon();
  archive_.drop(s.saved);
  kv_.cut_lost(s.sequence, /*keeps_whole_pages=*/select_config_.is_full());
  const u32 n_lost = n_slots - s.sequence.n_slots();
  s.generation.reused.forget(n_lost);
  s.note_cut();
  selector_.forget(s.idx);
  s.turns.start_over(s.n_ids);
  if (s.sequence.reserve(s.n_pending())) return true;
  s.sequence.clear();
  return false;
}

// What is lost meanwhile is computed anew.
Result<void> Sessions::cut(Session& s, u32 n_slots) {
  archive_.drop(s.saved);  // its pages are about to be others
  const Result<void> is_cut = kv_.truncate(s.sequence, n_slots);
  if (!is_cut && is_cut.error().status == Status::io_failed) {
    if (!lose_kv(s)) return fail(is_cut.error());
    s.sequence.abandon();
    return {};
  }
  TARN_CHECK(is_cut);
  s.note_cut();
  return {};
}

// A session whose KV was lost may have fewer slots than tokens.
void Sessions::release_slots() {
  for (Session& s : sessions_) {
    if (s.state != SessionState::idle || s.sequence.n_reserved() <= s.n_ids) continue;
    s.sequence.abandon();
    archive_.drop(s.saved);
    const bool reserved = s.sequence.reserve(s.n_pending());
    TARN_ASSERT(reserved);  // what abandon() gave back a moment ago
  }
}

bool Sessions::end_all_cancelled() {
  bool has_ended = false;
  for (Session& s : sessions_) {
    if (!s.cancel.load(std::memory_order_relaxed) || !s.can_cancel(scratch_)) continue;
    s.end_cancelled(scratch_);
    has_ended = true;
  }
  return has_ended;
}

}  // namespace tarn::engine
