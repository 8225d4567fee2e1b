// The calls on sessions. Saved sessions: session_saves.cpp; conversations: session_chat.cpp.
#include "runtime/engine/sessions/session_pool.h"

#include <algorithm>
#include <array>
#include <optional>

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

// Refuses a call that does not fit what the session does now.
Unexpected not_now(const char* hint) {
  return fail({.status = Status::invalid_request, .reason = Reason::wrong_state, .hint = hint});
}

// Returns whether BOS stands twice: the tokenizer puts it in front of a text, and the text may
// begin with it, too.
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

// Returns that of its tenant's other sessions, or one that no session has.
u32 SessionPool::tenant_idx_of(const Session& s) const {
  const auto others = [&](auto&& is) {
    return std::ranges::find_if(o_.sessions, [&](const Session& other) {
      return &other != &s && other.state != SessionState::free && is(other);
    });
  };
  const auto same =
      others([&](const Session& other) { return other.client.root == s.client.root; });
  if (same != o_.sessions.end()) return same->client.tenant_idx;
  u32 idx = 0;
  while (others([&](const Session& other) { return other.client.tenant_idx == idx; }) !=
         o_.sessions.end())
    ++idx;
  return idx;
}

Result<SessionIdx> SessionPool::create(const SessionArgs& args) {
  for (SessionIdx idx = 0; idx < o_.sessions.size(); ++idx) {
    Session& s = o_.sessions[idx];
    if (s.state != SessionState::free) continue;
    s.reset(o_.text.tokenizer(), admission_.now());
    kv_.archive().forget(s.saved);
    s.saved.tenant = reuse::Tenant::of(kv_.cache().prefixes().index().secret(), args.tenant);
    s.client = {.priority = args.priority,
                .root = reuse::identity_key(kv_.cache().prefixes().index().secret(),
                                            reuse::of_tenant(o_.identity, s.saved.tenant.key))};
    s.client.tenant_idx = tenant_idx_of(s);
    kv_.selector().forget(idx);
    return idx;
  }
  return fail({.status = Status::would_block,
               .reason = Reason::busy_sessions,
               .hint = "all sessions are in use: try again when one has ended, or raise "
                       "engine.sessions_max",
               .figures = {{{"sessions_max", o_.plan.sessions_max}}}});
}

void SessionPool::destroy(SessionIdx idx) {
  Session& s = o_.sessions[idx];
  TARN_ASSERT(s.state != SessionState::free);
  if (s.saved.name_bytes > 0) kv_.archive().checkpoint_last(view_of(s));
  kv_.archive().forget(s.saved);
  kv_.blends().forget(s);
  s.sequence.clear();
  kv_.selector().forget(idx);
  s.tokens.n_ids = 0;
  s.rest();
  s.state = SessionState::free;
  admission_.note_left();
}

Result<void> SessionPool::begin_feed(Session& s, std::span<const u32> ids, u32 n_kept_max) {
  if (s.state == SessionState::generating) {
    return not_now("the session is generating: wait for its end, or cancel it");
  }
  if (s.state == SessionState::computing && s.cancel.load())
    s.end_cancelled(Finish::cancelled, o_.scratch);
  if (s.state == SessionState::idle) s.cancel.store(false);  // it came too late for what it meant
  const u64 room_tokens = o_.plan.context_tokens - std::min(s.tokens.n_ids, n_kept_max);
  if (ids.size() > room_tokens) {  // before the ids are read: a wrong count leads out of them
    const u64 n_kept = o_.plan.context_tokens - room_tokens;
    const u64 n_more = std::min<u64>(ids.size(), ~u64{0} - n_kept);
    return text::exceeds_context(n_kept + n_more, o_.plan.context_tokens);
  }
  TARN_CHECK(check_ids(o_.model.spec, ids));
  TARN_CHECK(admission_.check_queue(s));
  return kv_.cut_approximate(s);
}

Result<void> SessionPool::check_parts(const Parts& parts) const {
  if (!(parts.recompute >= 0 && parts.recompute <= 1) && parts.recompute != Parts::kAuto)
    return bad_field("recompute", "the share of chunks to recompute is a number from 0 to 1");
  if (parts.recompute == 1 || o_.plan.n_blends > 0) return {};
  return fail(
      {.status = Status::unsupported,
       .reason = Reason::bad_setting,
       .key = "reuse.prefix",
       .hint = "chunks are blended with reuse.prefix = true: set it, or feed the parts without a "
               "share to recompute"});
}

void SessionPool::add_chunks(Session& s, const Parts& parts, std::span<const u32> ids, u32 begin) {
  if (s.generation.fed_ns == 0) s.approx.decision = {};
  if (parts.chunks.empty()) return;
  loads_.decide_share(s, parts.chunks, ids, begin);
  if (parts.recompute != Parts::kAuto) {
    s.approx.decision.share = static_cast<f64>(parts.recompute);
  } else if (s.approx.decision.is_adaptive && o_.least_share < 1) {
    o_.log.info("session %u: %.4f of the chunks is computed anew: reading %.3f s, prefill %.3f s",
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
      .n_check_layers = o_.plan.blend_sizes(o_.model.spec).n_check_cache_layers(),
      .share = s.approx.decision.share};
  s.approx.chunks.begin_feed();
  for (const reuse::ChunkSpan& part : parts.chunks) {
    if (s.approx.chunks.is_full()) break;
    if (part.begin >= part.end || begin + part.begin < s.tokens.n_ids) continue;
    auto chunk =
        kv_.blends().chunk_of({begin + part.begin, begin + part.end}, first_id, prompt.n_tokens);
    if (!chunk) continue;
    if (begin == 0 && prompt.n_chunks == 0)
      prompt.n_there =
          kv_.cache().prefixes().cached(s.client.root, ids.first(chunk->begin)).n_tokens();
    ++prompt.n_chunks;
    prompt.n_chunk_tokens += chunk->n_tokens();
    prompt.n_checked = chunk->end;
    chunk->recompute = share;
    s.approx.chunks.add(*chunk);
  }
  s.approx.decision.blend_s = loads_.controller().blend_s(prompt, s.approx.decision.load_s);
}

Result<void> SessionPool::feed(SessionIdx idx, std::span<const u32> ids, const Parts& parts) {
  TARN_CHECK(check_parts(parts));
  Session& s = o_.sessions[idx];
  TARN_CHECK(begin_feed(s, ids, /*n_kept_max=*/o_.plan.context_tokens));
  if (parts.recompute < 1 && parts.chunks.size() > s.approx.chunks.n_left()) {
    return bad_field("parts",
                     "too many chunks for one session: join some of them, or begin another session",
                     {"chunks", parts.chunks.size()}, {"room", s.approx.chunks.n_left()});
  }
  if (!ids.empty()) add_chunks(s, parts, ids, s.tokens.n_ids);
  append(s, ids);
  return {};
}

void SessionPool::append(Session& s, std::span<const u32> ids) {
  std::copy(ids.begin(), ids.end(), s.tokens.ids.begin() + s.tokens.n_ids);
  if (s.generation.fed_ns == 0) {
    s.generation.fed_ns = o_.clock->now_ns();
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
      has_two_bos(s.tokens.ids.first(s.tokens.n_ids + n_more), o_.text.tokenizer().first_token())) {
    has_told_of_bos_ = true;
    o_.log.warning(
        "a prompt begins with BOS twice: the model's file adds it (tokenizer.ggml.add_bos_token), "
        "so leave it out of the text");
  }
  s.tokens.generated.set(s.tokens.n_ids, s.tokens.n_ids + n_more, false);
  s.tokens.n_ids += n_more;
  s.saved.ask_more();
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  admission_.ask(s);
}

Result<void> SessionPool::generate(SessionIdx idx, const GenerateParams& params) {
  Session& s = o_.sessions[idx];
  if (s.state == SessionState::generating) return not_now("the session is generating already");
  if (s.tokens.n_ids == 0)
    return not_now("nothing was fed: feed at least one token (BOS, say) first");
  TARN_CHECK(validate(params.sampler, o_.model.spec.n_vocab));
  TARN_CHECK(admission_.check_queue(s));
  TARN_CHECK(s.generation.set_stops(params.stops));
  if (s.generation.fed_ns == 0) s.generation.reused = {};
  s.generation.begin(params, o_.text.tokenizer());
  if (s.generation.fed_ns == 0) s.generation.fed_ns = o_.clock->now_ns();
  if (s.state == SessionState::idle) s.tokens.n_settled = s.tokens.n_ids;
  s.cancel.store(false);
  s.last_error = {};  // computed after all, or an event says why not
  s.saved.ask_more();
  s.state = SessionState::generating;
  admission_.ask(s);
  return {};
}

Result<void> SessionPool::truncate(SessionIdx idx, u32 n_tokens) {
  Session& s = o_.sessions[idx];
  if (s.state == SessionState::generating) {
    return not_now("the session is generating: wait for its end, or cancel it");
  }
  if (n_tokens > s.tokens.n_ids) {
    return bad_field("n_tokens", "the session has fewer tokens than that", {"asked", n_tokens},
                     {"tokens", s.tokens.n_ids});
  }
  s.sequence.abandon();
  s.run.is_admitted = false;
  kv_.archive().drop(s.saved);
  if (n_tokens < s.sequence.n_slots()) {
    const Result<void> is_cut = kv_.cut(s, n_tokens);
    if (!is_cut) {
      admission_.ask(s);
      return is_cut;
    }
  }
  kv_.selector().truncate(idx, n_tokens);
  s.truncate(n_tokens);
  s.state = s.n_computable() > 0 ? SessionState::computing : SessionState::idle;
  admission_.ask(s);
  return {};
}

Result<SessionIdx> SessionPool::fork(SessionIdx idx) {
  Session& source = o_.sessions[idx];
  if (source.state != SessionState::idle) {
    return not_now("only an idle session can be forked: wait until it has computed and generated");
  }
  TARN_TRY(const SessionIdx copy_idx, create({.priority = source.client.priority}));
  Session& copy = o_.sessions[copy_idx];
  const Result<void> is_copied = kv_.with_room(
      source, [&] { return kv_.cache().fork(source.sequence, copy.sequence, /*n_more=*/0); });
  if (!is_copied) {
    destroy(copy_idx);
    return fail(is_copied.error());
  }
  copy.copy_from(source);
  kv_.selector().copy(idx, copy_idx, copy.sequence);
  return copy_idx;
}

}  // namespace tarn::engine
