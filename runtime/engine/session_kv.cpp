#include "runtime/engine/session_kv.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::engine {

using step::Priority;

// Cuts KV that was just taken to its first n_slots, or the whole pages of them.
void SessionKv::cut_taken(Session& s, u32 n_slots) {
  if (cache_.truncate(s.sequence, n_slots)) return;
  const u32 page_tokens = o_.page_tokens();
  const bool is_cut = s.sequence.truncate(n_slots / page_tokens * page_tokens);
  TARN_ASSERT(is_cut);  // between two pages
}

// Takes the pages of its first n_ids tokens that are computed already. Not where every row's logits
// are wanted, and not behind KV that does not follow from its tokens. The last token's row is
// computed in any case: its logits are wanted. An index may know of a tail that is not full.
void SessionKv::take_prefix(Session& s, u32 n_ids) {
  const u32 page_tokens = o_.page_tokens(), n_had = s.sequence.n_slots();
  const u32 n_before = std::max(n_had, s.run.n_evicted);  // its own KV is not reused
  if (s.watch.fn != nullptr || s.approx.is_any()) return;
  if (!o_.select.is_full() && n_had % page_tokens != 0) return;
  n_ids = std::min(n_ids, s.approx.chunks.first_token());  // where they come from changes no token
  if (n_ids < n_had) return;
  kv::Reused reused = cache_.prefixes().take(s.sequence, s.client.root, s.tokens.ids.first(n_ids),
                                             s.load.n_from_disk_max);
  if (reused.n_tokens() == 0) return;
  if (s.load.n_from_disk_max != kNoSlot) s.load.n_from_disk_max -= reused.n_from_disk;
  if (s.sequence.n_slots() == n_ids) {
    const bool is_here = cache_.prefixes().is_here(s.sequence, n_ids / page_tokens - 1);
    cut_taken(s, is_here ? n_ids - 1 : n_ids - page_tokens);  // no row waits for the disk
  }
  const u32 n_taken = std::max(s.sequence.n_slots(), n_before) - n_before;
  reused.n_from_disk = std::min(reused.n_from_disk, n_taken);
  reused.n_from_memory = n_taken - reused.n_from_disk;
  s.generation.reused += reused;
  s.load.n_taken = std::max(s.load.n_taken, s.sequence.n_slots());
}

// Once for what was fed, however often it waits. Where not all of its KV has room in memory, what
// is computed would go to the disk again.
void SessionKv::decide_loading(Session& s) {
  const u32 page_tokens = o_.page_tokens();
  if (s.load.decided_order == s.run.order && s.load.decided_fed == s.tokens.turns.n_fed()) return;
  s.load.n_from_disk_max = kNoSlot;
  const u64 n_groups = (s.tokens.n_ids / page_tokens + 1) * u64{o_.model.spec.n_cache_layers};
  const u64 n_frames = n_groups + u64{2} * o_.plan.tiers.pin_set_groups;
  if (!controller_.knows_costs() || n_frames > o_.plan.kv.n_frames) return;
  const u32 n_had = s.sequence.n_slots(),
            n_ids = std::min(s.tokens.n_ids, s.approx.chunks.first_token());
  if (s.watch.fn != nullptr || s.approx.is_any() || n_ids <= n_had) return;
  const kv::Reused there = cache_.prefixes().cached(s.client.root, s.tokens.ids.first(n_ids));
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
  o_.log.info("session %u: KV of %u tokens on the disk is computed: %.3f s, reading it %.3f s",
              s.idx, n_disk, decision.compute_s, decision.load_s);
}

// Learns by a read how fast the disk is now. The session's own tail stays.
void SessionKv::probe_disk(Session& s, u32 n_ids) {
  const u32 page_tokens = o_.page_tokens(), n_had = s.sequence.n_slots();
  if (n_had % page_tokens != 0) return;
  cache_.prefixes().take(s.sequence, s.client.root, s.tokens.ids.first(n_ids),
                         controller_.probe_tokens());
  for (u32 page = n_had / page_tokens; page < s.sequence.n_slots() / page_tokens; ++page) {
    for (u32 layer = 0; layer < o_.model.spec.n_cache_layers; ++layer)
      cache_.tiers().mover.read_spare(s.sequence.group(layer, page).idx);
  }
  cut_taken(s, n_had);
}

// Decides the share of chunks. The ids whose pages are looked for lie behind the session's own
// meanwhile.
void SessionKv::decide_share(Session& s, std::span<const reuse::ChunkSpan> chunks,
                             std::span<const u32> ids, u32 begin) {
  const std::optional<u32> bos = o_.text.tokenizer().first_token();
  u32 n_tokens = 0, n_on_disk = 0;
  for (const reuse::ChunkSpan& chunk : chunks) {
    if (chunk.begin >= chunk.end) continue;
    const u32 n = chunk.end - chunk.begin, n_bos = bos ? 1 : 0;
    n_tokens += n;
    const std::span<u32> looked_for = s.tokens.ids.subspan(s.tokens.n_ids);
    if (!controller_.is_adaptive() || n_bos + n > looked_for.size()) continue;
    if (bos) looked_for[0] = *bos;
    std::ranges::copy(ids.subspan(chunk.begin, n), looked_for.begin() + n_bos);
    n_on_disk += cache_.prefixes().cached(s.client.root, looked_for.first(n_bos + n)).n_from_disk;
  }
  const u32 n_ids = begin + static_cast<u32>(ids.size());
  s.approx.decision =
      controller_.decide_share(n_ids, n_tokens, n_on_disk, static_cast<f64>(o_.least_share));
}

void SessionKv::commit(Session& s, u32 n_rows) {
  const u32 n_before = s.sequence.n_slots();
  s.sequence.commit(n_rows);
  const u32 page_tokens = o_.page_tokens();
  const u32 n_exact = std::min(s.sequence.n_slots(), s.approx.first_slot);
  cache_.prefixes().list(s.sequence, s.client.root, s.tokens.ids, n_before / page_tokens,
                         n_exact / page_tokens);
  archive_.name_private(s.sequence, s.tokens.ids, n_before, s.approx.first_slot);
}

// Part of the session's KV could not be read back. The KV before it stays, and so do the tokens:
// the next generation computes them anew. Where rows select, no KV stays, since an index is made of
// exact KV alone. It keeps its run slot while there is room for its tokens: others may hold the
// groups that it shared with them.
void SessionKv::lose(Session& s) {
  blends_.forget(s);
  const u32 n_slots = s.sequence.n_slots();
  s.sequence.abandon();
  archive_.drop(s.saved);
  cache_.cut_lost(s.sequence, /*keeps_whole_pages=*/o_.select.is_full());
  const u32 n_lost = n_slots - s.sequence.n_slots();
  s.generation.reused.forget(n_lost);
  s.note_cut();
  selector_.forget(s.idx);
  s.tokens.turns.start_over(s.tokens.n_ids);
  s.run.is_admitted = s.run.is_admitted && s.sequence.reserve(s.n_pending());
}

// Cuts the KV. What is lost meanwhile is computed anew. A cut within a shared group takes one more.
Result<void> SessionKv::cut(Session& s, u32 n_slots) {
  archive_.drop(s.saved);  // its pages are about to be others
  blends_.forget(s);
  const Result<void> is_cut = with_room(s, [&] { return cache_.truncate(s.sequence, n_slots); });
  if (!is_cut && is_cut.error().status == Status::io_failed) {
    lose(s);
    s.sequence.abandon();
    return {};
  }
  TARN_CHECK(is_cut);
  s.note_cut();
  return {};
}

// With exact answers. Its tokens become part of the input that comes, as if the session had been
// cut there and they were fed.
Result<void> SessionKv::cut_approximate(Session& s) {
  if (!s.approx.is_any()) return {};
  const u32 begin = std::max(s.approx.first_slot, s.approx.blended_end);  // what was blended stays
  if (s.state != SessionState::idle || !o_.select.exact_answers || s.sequence.n_slots() <= begin) {
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

void SessionKv::release_slots() {
  for (Session& s : o_.sessions) {
    if (s.state != SessionState::idle || s.sequence.n_reserved() <= s.tokens.n_ids) continue;
    s.sequence.abandon();
    archive_.drop(s.saved);
  }
}

bool SessionKv::can_evict(const Session& s) const {
  const bool follows_from_tokens = !s.approx.is_any() && !selector_.has_index(s.idx);
  return s.sequence.n_reserved() > 0 && s.watch.fn == nullptr && follows_from_tokens;
}

void SessionKv::evict(Session& s) {
  blends_.forget(s);
  s.run.n_evicted = s.sequence.n_slots();
  if (s.load.n_taken >= s.run.n_evicted) {  // nothing was computed behind it
    s.run.n_evicted -= std::min(s.run.n_evicted, s.generation.reused.n_tokens());
    s.generation.reused.bound(0);
  }
  archive_.drop(s.saved);
  cache_.prefixes().evict(s.sequence);
  s.run.is_admitted = false;
  s.note_cut();
  selector_.forget(s.idx);
}

bool SessionKv::reserve(Session& s) {
  return kv::KvCache::reserve_slots(s.sequence, s.tokens.n_ids) && blends_.begin(s);
}

// Loses a chunk that is blended into this session's prompt.
void SessionKv::lose_chunk(Session& s, const Error& error) {
  reuse::Blend* const blend = blends_.of(s);
  if (blend != nullptr && blend->lose_chunk()) return;
  blends_.forget(s);
  s.give_up(error, o_.log, o_.scratch);
}

void SessionKv::commit_blended(Session& s, u32 n_slots) {
  s.approx.first_slot = std::min(s.approx.first_slot, s.sequence.n_slots());
  commit(s, n_slots);
  s.approx.blended_end = s.sequence.n_slots();
  const std::span<const reuse::Chunk> ahead = s.chunks_ahead();
  const bool has_more = !ahead.empty() && ahead.front().begin < s.approx.blended_end;
  const reuse::Blend* const blend = blends_.of(s);
  if (!has_more && blend != nullptr)
    s.generation.reused.add_blended(blend->n_placed(), blend->n_recomputed());
}

bool SessionKv::make_room(Session& s) {
  while (!reserve(s)) {
    if (!take_room(s)) return false;
  }
  return true;
}

bool SessionKv::take_room(const Session& needs) {
  Session* const holder = room_holder(needs);
  if (holder != nullptr) evict(*holder);
  return holder != nullptr;
}

// Returns the session whose KV is evicted next for this one's; nullptr: none.
Session* SessionKv::room_holder(const Session& needs) {
  Session *idle = nullptr, *waits = nullptr, *runs = nullptr;
  for (Session& s : o_.sessions) {
    if (&s == &needs || !can_evict(s)) continue;
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
