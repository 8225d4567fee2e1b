// The calls on sessions, and what a step does to one. Saved sessions: sessions_saved.cpp.
#include "runtime/engine/sessions.h"

#include <algorithm>
#include <array>
#include <optional>

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

// The call does not fit what the session does now.
Unexpected not_now(const char* hint) {
  return fail({.status = Status::invalid_request, .reason = Reason::wrong_state, .hint = hint});
}

// Rows of an input go together. A restored session may have generated tokens to compute again. The
// last one goes alone, as it did before, since an index may begin with it. No index had begun
// before the others, or all of their KV would have been saved.
u32 n_rows_at_once(const Session& s) {
  const u32 n_slots = s.sequence.n_slots(), n_fed = s.tokens.turns.n_fed();
  return n_slots < n_fed ? n_fed - n_slots : std::max(s.n_pending() - 1, 1u);
}

// The tokenizer puts BOS in front of a text, and the text may begin with it, too.
bool has_two_bos(std::span<const u32> ids, std::optional<text::TokenId> bos) {
  return bos && ids.size() >= 2 && ids[0] == *bos && ids[1] == *bos;
}

}  // namespace

Result<void> check_ids(const model::ModelSpec& spec, std::span<const u32> ids) {
  for (const u32 id : ids) {
    if (id < spec.n_vocab) continue;
    return bad_field("ids", "a token is not in the vocabulary", {"token", id},
                     {"n_vocab", spec.n_vocab});
  }
  return {};
}

Result<SessionIdx> Sessions::create_session(const SessionArgs& args) {
  for (SessionIdx idx = 0; idx < sessions_.size(); ++idx) {
    Session& s = sessions_[idx];
    if (s.state != SessionState::free) continue;
    s.reset(text_.tokenizer(), n_given_);
    archive_.forget(s.saved);
    s.saved.tenant = reuse::Tenant::of(kv_.prefixes().index().secret(), args.tenant);
    s.client = {.priority = args.priority,
                .root = reuse::identity_key(kv_.prefixes().index().secret(),
                                            reuse::of_tenant(identity_, s.saved.tenant.key))};
    s.client.tenant_idx = tenant_idx_of(s);
    selector_.forget(idx);
    return idx;
  }
  return fail({.status = Status::would_block,
               .reason = Reason::busy_sessions,
               .hint = "all sessions are in use: try again when one has ended, or raise "
                       "engine.sessions_max",
               .figures = {{{"sessions_max", plan_.sessions_max}}}});
}

void Sessions::destroy_session(SessionIdx idx) {
  Session& s = sessions_[idx];
  TARN_ASSERT(s.state != SessionState::free);
  if (s.saved.name_bytes > 0) archive_.checkpoint_last(view_of(s));
  archive_.forget(s.saved);
  blend_.forget(idx);
  s.sequence.clear();
  selector_.forget(idx);
  s.tokens.n_ids = 0;
  s.rest();
  s.state = SessionState::free;
  admit();
}

Result<void> Sessions::begin_feed(SessionIdx idx, std::span<const u32> ids, u32 n_kept_max) {
  Session& s = sessions_[idx];
  if (s.state == SessionState::generating) {
    return not_now("the session is generating: wait for its end, or cancel it");
  }
  if (s.state == SessionState::computing && s.cancel.load())
    s.end_cancelled(Finish::cancelled, scratch_);
  if (s.state == SessionState::idle) s.cancel.store(false);  // it came too late for what it meant
  const u64 room_tokens = plan_.context_tokens - std::min(s.tokens.n_ids, n_kept_max);
  if (ids.size() > room_tokens) {  // before the ids are read: a wrong count leads out of them
    const u64 n_kept = plan_.context_tokens - room_tokens;
    const u64 n_more = std::min<u64>(ids.size(), ~u64{0} - n_kept);
    return text::exceeds_context(n_kept + n_more, plan_.context_tokens);
  }
  TARN_CHECK(check_ids(model_.spec, ids));
  TARN_CHECK(check_queue(s));
  return cut_approximate(s);
}

// With exact answers. Its tokens become part of the input that comes, as if the session had been
// cut there and they were fed.
Result<void> Sessions::cut_approximate(Session& s) {
  if (!s.approx.is_any()) return {};
  const u32 begin = std::max(s.approx.first_slot, s.approx.blended_end);  // what was blended stays
  if (s.state != SessionState::idle || !select_config_.exact_answers ||
      s.sequence.n_slots() <= begin) {
    return {};
  }
  s.sequence.abandon();
  archive_.drop(s.saved);
  TARN_CHECK(cut(s, begin));
  selector_.truncate(s.idx, begin);
  s.tokens.turns.truncate(begin);
  s.tokens.turns.feed(begin, s.tokens.n_ids - begin);
  s.saved.n_slots = std::min(s.saved.n_slots, begin);
  return {};
}

Result<void> Sessions::check_parts(const Parts& parts) const {
  if (!(parts.recompute >= 0 && parts.recompute <= 1) && parts.recompute != Parts::kAuto)
    return bad_field("recompute", "the share of chunks to recompute is a number from 0 to 1");
  if (parts.recompute == 1 || plan_.blends()) return {};
  return fail(
      {.status = Status::unsupported,
       .reason = Reason::bad_setting,
       .key = "reuse.prefix",
       .hint = "chunks are blended with reuse.prefix = true: set it, or feed the parts without a "
               "share to recompute"});
}

void Sessions::add_chunks(Session& s, const Parts& parts, std::span<const u32> ids, u32 begin) {
  if (s.generation.fed_ns == 0) s.approx.decision = {};
  if (parts.chunks.empty()) return;
  decide_share(s, parts.chunks, ids, begin);
  if (parts.recompute != Parts::kAuto) {
    s.approx.decision.share = static_cast<f64>(parts.recompute);
  } else if (s.approx.decision.is_adaptive && least_share_ < 1) {
    log_.info("session %u: %.4f of the chunks is computed anew: reading %.3f s, prefill %.3f s",
              s.idx, s.approx.decision.share, s.approx.decision.load_s,
              s.approx.decision.prefill_s);
  }
  const auto share = static_cast<f32>(s.approx.decision.share);
  s.approx.decision.blend_s = s.approx.decision.prefill_s;
  if (share == 1) return;
  const u32 first_id = begin > 0 ? s.tokens.ids[0] : ids[0];
  control::BlendPrompt prompt{
      .n_tokens = begin + static_cast<u32>(ids.size()),
      .n_there = begin,
      .n_check_layers = plan_.blend_sizes(model_.spec).n_check_cache_layers(),
      .share = s.approx.decision.share};
  s.approx.chunks.begin_feed();
  for (const reuse::ChunkSpan& part : parts.chunks) {
    if (s.approx.chunks.is_full()) break;
    if (part.begin >= part.end || begin + part.begin < s.tokens.n_ids) continue;
    auto chunk = blend_.chunk_of({begin + part.begin, begin + part.end}, first_id, prompt.n_tokens);
    if (!chunk) continue;
    if (begin == 0 && prompt.n_chunks == 0)
      prompt.n_there = kv_.prefixes().cached(s.client.root, ids.first(chunk->begin)).n_tokens();
    ++prompt.n_chunks;
    prompt.n_chunk_tokens += chunk->n_tokens();
    prompt.n_checked = chunk->end;
    chunk->recompute = share;
    s.approx.chunks.add(*chunk);
  }
  s.approx.decision.blend_s = controller_.blend_s(prompt, s.approx.decision.load_s);
}

Result<void> Sessions::feed(SessionIdx idx, std::span<const u32> ids, const Parts& parts) {
  TARN_CHECK(check_parts(parts));
  TARN_CHECK(begin_feed(idx, ids, /*n_kept_max=*/plan_.context_tokens));
  Session& s = sessions_[idx];
  if (parts.recompute < 1 && parts.chunks.size() > s.approx.chunks.n_left()) {
    return bad_field("parts",
                     "too many chunks for one session: join some of them, or begin another session",
                     {"chunks", parts.chunks.size()}, {"room", s.approx.chunks.n_left()});
  }
  if (!ids.empty()) add_chunks(s, parts, ids, s.tokens.n_ids);
  append(s, ids);
  return {};
}

void Sessions::append(Session& s, std::span<const u32> ids) {
  std::copy(ids.begin(), ids.end(), s.tokens.ids.begin() + s.tokens.n_ids);
  if (s.generation.fed_ns == 0) {
    s.generation.fed_ns = clock_->now_ns();
    s.generation.reused = {};
    s.load.decision = {};
  }
  s.last_error = {};
  if (s.state == SessionState::idle) s.tokens.n_settled = s.tokens.n_ids;
  // The first input after a restore is one of its own, also while lost KV is computed anew.
  if (s.state == SessionState::idle || s.saved.restored) s.tokens.turn_begin = s.tokens.n_ids;
  const u32 n_more = static_cast<u32>(ids.size());
  s.tokens.turns.feed(s.tokens.n_ids, n_more);
  const bool begins = s.tokens.n_ids < 2 && !has_told_of_bos_;
  if (begins &&
      has_two_bos(s.tokens.ids.first(s.tokens.n_ids + n_more), text_.tokenizer().first_token())) {
    has_told_of_bos_ = true;
    log_.warning(
        "a prompt begins with BOS twice: the model's file adds it (tokenizer.ggml.add_bos_token), "
        "so leave it out of the text");
  }
  s.tokens.generated.set(s.tokens.n_ids, s.tokens.n_ids + n_more, false);
  s.tokens.n_ids += n_more;
  s.saved.ask_more();
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  wait_for_place(s);
}

Result<void> Sessions::generate(SessionIdx idx, const GenerateParams& params) {
  Session& s = sessions_[idx];
  if (s.state == SessionState::generating) return not_now("the session is generating already");
  if (s.tokens.n_ids == 0)
    return not_now("nothing was fed: feed at least one token (BOS, say) first");
  TARN_CHECK(validate(params.sampler, model_.spec.n_vocab));
  TARN_CHECK(check_queue(s));
  TARN_CHECK(s.generation.set_stops(params.stops));
  if (s.generation.fed_ns == 0) s.generation.reused = {};
  s.generation.begin(params, text_.tokenizer());
  if (s.generation.fed_ns == 0) s.generation.fed_ns = clock_->now_ns();
  if (s.state == SessionState::idle) s.tokens.n_settled = s.tokens.n_ids;
  s.cancel.store(false);
  s.last_error = {};  // computed after all, or an event says why not
  s.saved.ask_more();
  s.state = SessionState::generating;
  wait_for_place(s);
  return {};
}

Result<void> Sessions::truncate(SessionIdx idx, u32 n_tokens) {
  Session& s = sessions_[idx];
  if (s.state == SessionState::generating) {
    return not_now("the session is generating: wait for its end, or cancel it");
  }
  if (n_tokens > s.tokens.n_ids) {
    return bad_field("n_tokens", "the session has fewer tokens than that", {"asked", n_tokens},
                     {"tokens", s.tokens.n_ids});
  }
  s.sequence.abandon();
  s.run.is_admitted = false;
  archive_.drop(s.saved);
  if (n_tokens < s.sequence.n_slots()) {
    const Result<void> is_cut = cut(s, n_tokens);
    if (!is_cut) {
      wait_for_place(s);
      return is_cut;
    }
  }
  selector_.truncate(idx, n_tokens);
  s.truncate(n_tokens);
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  wait_for_place(s);
  return {};
}

Result<SessionIdx> Sessions::fork(SessionIdx idx) {
  Session& source = sessions_[idx];
  if (source.state != SessionState::idle) {
    return not_now("only an idle session can be forked: wait until it has computed and generated");
  }
  TARN_TRY(const SessionIdx copy_idx, create_session({.priority = source.client.priority}));
  Session& copy = sessions_[copy_idx];
  const Result<void> is_copied =
      with_room(source, [&] { return kv_.fork(source.sequence, copy.sequence, /*n_more=*/0); });
  if (!is_copied) {
    destroy_session(copy_idx);
    return fail(is_copied.error());
  }
  copy.copy_from(source);
  selector_.copy(idx, copy_idx, copy.sequence);
  return copy_idx;
}

// ---- What a step does -----------------------------------------------------------------------

reuse::BlendTarget Sessions::blend_target(Session& s) {
  return {.session = s.idx,
          .sequence = &s.sequence,
          .root = s.client.root,
          .ids = s.tokens.ids.first(s.tokens.n_ids)};
}

// Rows up to its next chunks, or of their blend; nullopt: it has come to chunks that are not its
// place's.
std::optional<u32> Sessions::n_rows_of(Session& s) {
  const u32 n_rows = s.n_ready_rows(scratch_), n_slots = s.sequence.n_slots();
  if (n_rows == 0 || s.chunks_ahead().empty()) return n_rows;
  const u32 begin = s.chunks_ahead().front().begin;
  if (n_slots < begin) return std::min(n_rows, begin - n_slots);
  if (!blends(s) || !blend_.prepare(blend_target(s))) return std::nullopt;
  return std::min(n_rows, blend_.n_ready(blend_target(s)));
}

// Who has come to chunks that were fed since it got its place waits for another. Others may lose
// theirs by that, so all of it comes before any is ready.
std::span<Ready> Sessions::ready_sessions() {
  u32 n = 0;
  for (Session& s : sessions_) {
    if (n_rows_of(s)) continue;
    s.run.is_admitted = false;
    wait_for_place(s);
  }
  for (Session& s : sessions_) {
    if (s.n_ready_rows(scratch_) > plan_.group_shape.page_tokens) {
      take_prefix(s, s.tokens.n_ids - 1);  // a last row is left
      const bool reserved = kv::KvCache::reserve_slots(s.sequence, s.tokens.n_ids);
      TARN_ASSERT(reserved);  // what the pages took the place of
    }
    const u32 n_rows = n_rows_of(s).value_or(0);
    if (n_rows == 0) continue;
    Ready& ready = ready_[n++];
    ready = {.session = s.idx,
             .n_rows = n_rows,
             .tenant = s.client.tenant_idx,
             .priority = s.client.priority};
    if (!select_config_.is_full()) ready.n_rows = std::min(n_rows, n_rows_at_once(s));
    if (s.state != SessionState::generating || s.n_pending() > 1) continue;
    ready.kind = s.generation.n_generated > 0 ? RunKind::decode : RunKind::first;
    ready.is_generated = s.sequence.n_slots() >= s.tokens.turns.n_fed();
  }
  return ready_.first(n);
}

bool Sessions::have_work() const {
  const bool may_start = !any_runs();
  return std::ranges::any_of(sessions_, [&](const Session& s) {
    return s.n_ready_rows(scratch_) > 0 ||
           archive_.is_due_now(s.saved, s.sequence.n_slots(), s.state == SessionState::idle) ||
           (s.can_cancel(scratch_) && (s.cancel.load() || (s.waits() && may_start)));
  });
}

void Sessions::accept_token(Session& s, Sampled sampled) {
  Generation& generation = s.generation;
  if (generation.n_generated < generation.forced.size()) {
    sampled.token = generation.forced[generation.n_generated];
  }
  const bool fits = s.tokens.n_ids < plan_.context_tokens;
  if (fits) {
    s.tokens.generated.set(s.tokens.n_ids, s.tokens.n_ids + 1, true);
    s.tokens.ids[s.tokens.n_ids++] = sampled.token;
    s.run.is_admitted = s.sequence.reserve(1);  // else it waits, and gets one before others
  }
  const std::optional<Finish> end = generation.accept(sampled, clock_->now_ns(), scratch_);
  if (end || !fits) place_time_.observe(clock_->now_ns() - s.run.admitted_ns);
  if (end || !fits) s.finish(end.value_or(Finish::length), nullptr, scratch_);
}

bool Sessions::end_all_cancelled() {
  bool has_ended = false;
  for (Session& s : sessions_) {
    const bool is_cancelled = s.cancel.load(std::memory_order_relaxed);
    const bool is_late = s.state == SessionState::generating && s.generation.deadline_ns != 0 &&
                         clock_->now_ns() >= s.generation.deadline_ns;
    if (!(is_cancelled || is_late) || !s.can_cancel(scratch_)) continue;
    s.end_cancelled(is_cancelled ? Finish::cancelled : Finish::deadline, scratch_);
    has_ended = true;
  }
  return has_ended;
}

}  // namespace tarn::engine
