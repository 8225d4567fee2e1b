#include "runtime/engine/session_table.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "platform/base/assert.h"

namespace tarn::engine {

using step::Priority;

void Session::reset(const text::Tokenizer& tokenizer, u64 now) {
  state = SessionState::idle;
  cancel.store(false);
  tokens.reset();
  run.reset(now);
  load.reset();
  approx.reset();
  generation.begin({}, tokenizer);
  generation.fed_ns = 0;
  generation.reused = {};
  last_error = {};
  watch = {};
}

void Session::copy_from(const Session& source) {
  client = source.client;
  tokens.copy_from(source.tokens);
  run.copy_from(source.run);
  approx.copy_from(source.approx);
  saved.tenant = source.saved.tenant;
  last_error = source.last_error;
}

void Session::truncate(u32 n) {
  cut_tokens(n);
  tokens.n_settled = n;
  run.truncate(n);
  generation.reused.bound(n);
  saved.n_slots = std::min(saved.n_slots, n);
  saved.ask_more();
  last_error = {};
}

void Session::end_cancelled(Finish reason, const GenerationScratch& scratch) {
  if (generation.n_generated == 0 || state == SessionState::computing)
    cut_tokens(std::max(sequence.n_slots(), tokens.n_settled));
  if (state == SessionState::generating) finish(reason, nullptr, scratch);
  rest();
  cancel.store(false);
}

void Session::finish(Finish reason, const Error* error, const GenerationScratch& scratch) {
  generation.finish(reason, error, scratch);
  rest();
  saved.stop(/*has_answer=*/generation.n_generated > 0);
}

bool comes_before(const Session& a, const Session& b) {
  const auto rank = [](const Session& s) {
    return std::tuple(s.client.priority, !s.has_begun(), s.run.order);
  };
  return rank(a) < rank(b);
}

// That of its tenant's other sessions, or one that nobody has.
u32 SessionTable::tenant_idx_of(const Session& s) const {
  const auto others = [&](auto&& is) {
    return std::ranges::find_if(sessions_, [&](const Session& other) {
      return &other != &s && other.state != SessionState::free && is(other);
    });
  };
  const auto same =
      others([&](const Session& other) { return other.client.root == s.client.root; });
  if (same != sessions_.end()) return same->client.tenant_idx;
  u32 idx = 0;
  while (others([&](const Session& other) { return other.client.tenant_idx == idx; }) !=
         sessions_.end())
    ++idx;
  return idx;
}

// Of KV that was just taken: the first n_slots stay, or the whole pages of them.
void SessionTable::cut_taken(Session& s, u32 n_slots) {
  if (kv_.truncate(s.sequence, n_slots)) return;
  const u32 page_tokens = plan_.group_shape.page_tokens;
  const bool is_cut = s.sequence.truncate(n_slots / page_tokens * page_tokens);
  TARN_ASSERT(is_cut);  // between two pages
}

// The pages of its first n_ids tokens that somebody has computed already. Not where every row's
// logits are wanted, and not behind KV that does not follow from its tokens. The last token's row
// is computed in any case: its logits are wanted. An index may know of a tail that is not full.
void SessionTable::take_prefix(Session& s, u32 n_ids) {
  const u32 page_tokens = plan_.group_shape.page_tokens, n_had = s.sequence.n_slots();
  const u32 n_before = std::max(n_had, s.run.n_evicted);  // its own KV is not reused
  if (s.watch.fn != nullptr || s.approx.is_any()) return;
  if (!select_config_.is_full() && n_had % page_tokens != 0) return;
  n_ids = std::min(n_ids, s.approx.chunks.first_token());  // where they come from changes no token
  if (n_ids < n_had) return;
  kv::Reused reused = kv_.prefixes().take(s.sequence, s.client.root, s.tokens.ids.first(n_ids),
                                          s.load.n_from_disk_max);
  if (reused.n_tokens() == 0) return;
  if (s.load.n_from_disk_max != kNoSlot) s.load.n_from_disk_max -= reused.n_from_disk;
  if (s.sequence.n_slots() == n_ids) {
    const bool is_here = kv_.prefixes().is_here(s.sequence, n_ids / page_tokens - 1);
    cut_taken(s, is_here ? n_ids - 1 : n_ids - page_tokens);  // nobody waits for the disk
  }
  const u32 n_taken = std::max(s.sequence.n_slots(), n_before) - n_before;
  reused.n_from_disk = std::min(reused.n_from_disk, n_taken);
  reused.n_from_memory = n_taken - reused.n_from_disk;
  s.generation.reused += reused;
  s.load.n_taken = std::max(s.load.n_taken, s.sequence.n_slots());
}

// Once for what was fed, however often it waits. Where not all of its KV has room in memory, what
// is computed would go to the disk again.
void SessionTable::decide_loading(Session& s) {
  const u32 page_tokens = plan_.group_shape.page_tokens;
  if (s.load.decided_order == s.run.order && s.load.decided_fed == s.tokens.turns.n_fed()) return;
  s.load.n_from_disk_max = kNoSlot;
  const u64 n_groups = (s.tokens.n_ids / page_tokens + 1) * u64{model_.spec.n_cache_layers};
  const u64 n_frames = n_groups + u64{2} * plan_.tiers.pin_set_groups;
  if (!controller_.knows_costs() || n_frames > plan_.kv.n_frames) return;
  const u32 n_had = s.sequence.n_slots(),
            n_ids = std::min(s.tokens.n_ids, s.approx.chunks.first_token());
  if (s.watch.fn != nullptr || s.approx.is_any() || n_ids <= n_had) return;
  const kv::Reused there = kv_.prefixes().cached(s.client.root, s.tokens.ids.first(n_ids));
  const u32 n_new = there.n_tokens() - std::min(n_had, there.n_tokens());
  const u32 n_disk = std::min(there.n_from_disk, n_new);
  const control::Decision decision =
      controller_.decide_prompt(s.tokens.n_ids, there.n_tokens() - n_disk, n_disk);
  s.load.decided_order = s.run.order;
  s.load.decided_fed = s.tokens.turns.n_fed();
  s.load.n_from_disk_max = decision.loads ? kNoSlot : 0;
  if (n_disk > 0 || s.load.decision.prompt.n_tokens == 0) s.load.decision = decision;
  if (decision.loads) return;
  probe_disk(s, n_ids);
  log_.info("session %u: KV of %u tokens on the disk is computed: %.3f s, reading it %.3f s", s.idx,
            n_disk, decision.compute_s, decision.load_s);
}

// How fast the disk is now is known by it. Its own tail stays.
void SessionTable::probe_disk(Session& s, u32 n_ids) {
  const u32 page_tokens = plan_.group_shape.page_tokens, n_had = s.sequence.n_slots();
  if (n_had % page_tokens != 0) return;
  kv_.prefixes().take(s.sequence, s.client.root, s.tokens.ids.first(n_ids),
                      controller_.probe_tokens());
  for (u32 page = n_had / page_tokens; page < s.sequence.n_slots() / page_tokens; ++page) {
    for (u32 layer = 0; layer < model_.spec.n_cache_layers; ++layer)
      kv_.tiers().mover.read_spare(s.sequence.group(layer, page).idx);
  }
  cut_taken(s, n_had);
}

// The ids whose pages are looked for lie behind the session's own meanwhile.
void SessionTable::decide_share(Session& s, std::span<const reuse::ChunkSpan> chunks,
                                std::span<const u32> ids, u32 begin) {
  const std::optional<u32> bos = text_.tokenizer().first_token();
  u32 n_tokens = 0, n_on_disk = 0;
  for (const reuse::ChunkSpan& chunk : chunks) {
    if (chunk.begin >= chunk.end) continue;
    const u32 n = chunk.end - chunk.begin, n_bos = bos ? 1 : 0;
    n_tokens += n;
    const std::span<u32> looked_for = s.tokens.ids.subspan(s.tokens.n_ids);
    if (!controller_.is_adaptive() || n_bos + n > looked_for.size()) continue;
    if (bos) looked_for[0] = *bos;
    std::ranges::copy(ids.subspan(chunk.begin, n), looked_for.begin() + n_bos);
    n_on_disk += kv_.prefixes().cached(s.client.root, looked_for.first(n_bos + n)).n_from_disk;
  }
  const u32 n_ids = begin + static_cast<u32>(ids.size());
  s.approx.decision =
      controller_.decide_share(n_ids, n_tokens, n_on_disk, static_cast<f64>(least_share_));
}

void SessionTable::commit(Session& s, u32 n_rows) {
  const u32 n_before = s.sequence.n_slots();
  s.sequence.commit(n_rows);
  const u32 page_tokens = plan_.group_shape.page_tokens;
  const u32 n_exact = std::min(s.sequence.n_slots(), s.approx.first_slot);
  kv_.prefixes().list(s.sequence, s.client.root, s.tokens.ids, n_before / page_tokens,
                      n_exact / page_tokens);
  archive_.name_private(s.sequence, s.tokens.ids, n_before, s.approx.first_slot);
}

void SessionTable::give_up(Session& s, const Error& error) {
  std::array<char, 512> text{};
  format_error(error, text.data(), text.size());
  log_.warning("session %u: %s", s.idx, text.data());
  s.last_error = {error.status, error.reason, error.hint, error.figures};
  if (s.state == SessionState::generating) return s.finish(Finish::error, &error, scratch_);
  s.rest();
  s.generation.fed_ns = 0;
}

// Part of the session's KV could not be read back. The KV before it stays, and so do the tokens:
// the next generation computes them anew. Where rows select, no KV stays, since an index is made of
// exact KV alone. It keeps its place while there is room for its tokens: others may hold the groups
// that it shared with them.
void SessionTable::lose_kv(Session& s) {
  blend_.forget(s.idx);
  const u32 n_slots = s.sequence.n_slots();
  s.sequence.abandon();
  archive_.drop(s.saved);
  kv_.cut_lost(s.sequence, /*keeps_whole_pages=*/select_config_.is_full());
  const u32 n_lost = n_slots - s.sequence.n_slots();
  s.generation.reused.forget(n_lost);
  s.note_cut();
  selector_.forget(s.idx);
  s.tokens.turns.start_over(s.tokens.n_ids);
  s.run.is_admitted = s.run.is_admitted && s.sequence.reserve(s.n_pending());
}

// What is lost meanwhile is computed anew. A cut within a shared group takes one more.
Result<void> SessionTable::cut(Session& s, u32 n_slots) {
  archive_.drop(s.saved);  // its pages are about to be others
  blend_.forget(s.idx);
  const Result<void> is_cut = with_room(s, [&] { return kv_.truncate(s.sequence, n_slots); });
  if (!is_cut && is_cut.error().status == Status::io_failed) {
    lose_kv(s);
    s.sequence.abandon();
    return {};
  }
  TARN_CHECK(is_cut);
  s.note_cut();
  return {};
}

void SessionTable::release_slots() {
  for (Session& s : sessions_) {
    if (s.state != SessionState::idle || s.sequence.n_reserved() <= s.tokens.n_ids) continue;
    s.sequence.abandon();
    archive_.drop(s.saved);
  }
}

bool SessionTable::any_runs() const {
  return std::ranges::any_of(sessions_, &Session::is_admitted);
}

bool SessionTable::can_park(const Session& s) const {
  const bool follows_from_tokens = !s.approx.is_any() && !selector_.has_index(s.idx);
  return s.sequence.n_reserved() > 0 && s.watch.fn == nullptr && follows_from_tokens;
}

void SessionTable::park(Session& s) {
  blend_.forget(s.idx);
  s.run.n_evicted = s.sequence.n_slots();
  if (s.load.n_taken >= s.run.n_evicted) {  // nothing was computed behind it
    s.run.n_evicted -= std::min(s.run.n_evicted, s.generation.reused.n_tokens());
    s.generation.reused.bound(0);
  }
  archive_.drop(s.saved);
  kv_.prefixes().evict(s.sequence);
  s.run.is_admitted = false;
  s.note_cut();
  selector_.forget(s.idx);
}

void SessionTable::check_blend() {
  for (const Session& s : sessions_) {
    if (blend_.is_of(s.idx) && (!s.is_busy() || !s.run.is_admitted || s.chunks_ahead().empty()))
      blend_.end();
  }
}

bool SessionTable::blends(const Session& s) const {
  if (!blend_.is_of(s.idx) || s.chunks_ahead().empty()) return false;
  return s.sequence.n_slots() >= s.chunks_ahead().front().begin;
}

bool SessionTable::waits_for_blend(const Session& s) const {
  return !blend_.is_free() && !blend_.is_of(s.idx) && !s.chunks_ahead().empty();
}

bool SessionTable::reserve(Session& s) {
  if (!kv::KvCache::reserve_slots(s.sequence, s.tokens.n_ids)) return false;
  return s.chunks_ahead().empty() || blend_.is_of(s.idx) || blend_.begin(s.idx, s.chunks_ahead());
}

// Of a chunk that is blended into this session's prompt.
void SessionTable::lose_chunk(Session& s, const Error& error) {
  if (blend_.is_of(s.idx) && blend_.lose_chunk()) return;
  blend_.forget(s.idx);
  give_up(s, error);
}

void SessionTable::commit_blended(Session& s, u32 n_slots) {
  s.approx.first_slot = std::min(s.approx.first_slot, s.sequence.n_slots());
  commit(s, n_slots);
  s.approx.blended_end = s.sequence.n_slots();
  const std::span<const reuse::Chunk> ahead = s.chunks_ahead();
  const bool has_more = !ahead.empty() && ahead.front().begin < s.approx.blended_end;
  if (!has_more) s.generation.reused.add_blended(blend_.n_placed(), blend_.n_recomputed());
}

bool SessionTable::make_room(Session& s) {
  while (!reserve(s)) {
    if (!take_room(s)) return false;
  }
  return true;
}

bool SessionTable::take_room(const Session& needs) {
  Session* const holder = room_holder(needs);
  if (holder != nullptr) park(*holder);
  return holder != nullptr;
}

// Whose KV is given up next for this session's; nullptr: nobody's.
Session* SessionTable::room_holder(const Session& needs) {
  Session *idle = nullptr, *waits = nullptr, *runs = nullptr;
  for (Session& s : sessions_) {
    if (&s == &needs || !can_park(s)) continue;
    const bool is_background = needs.client.priority == Priority::interactive &&
                               s.client.priority == Priority::background && comes_before(needs, s);
    if (s.state == SessionState::idle) {
      if (idle == nullptr || s.run.used_at < idle->run.used_at) idle = &s;
    } else if (needs.is_busy() && s.waits()) {
      if (waits == nullptr || comes_before(*waits, s)) waits = &s;
    } else if (needs.is_busy() && is_background) {
      if (runs == nullptr || comes_before(*runs, s)) runs = &s;
    }
  }
  return idle != nullptr ? idle : waits != nullptr ? waits : runs;
}

}  // namespace tarn::engine
