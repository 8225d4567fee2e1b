#include "runtime/engine/sessions/session_kv.h"

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
