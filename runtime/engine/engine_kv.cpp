// KV over memory and disk: what the engine does about it around a step, and when it fails.
#include <algorithm>
#include <array>

#include "platform/base/assert.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {

static_assert(kSessionsMax <= KvStream::kOwnersMax);

// Every row of the step gets its place in memory. A session for which there is none ends what it
// does; the others go on.
void Engine::find_frames() {
  if (!kv_stream_.is_on()) return;
  kv_stream_.begin_step();
  u32 n_left = 0;
  for (const Slice& slice : slices()) {
    Session& s = session(slice.session);
    const Result<void> writable = kv_stream_.make_writable(s.sequence, slice.n_rows);
    if (writable) {
      schedule_.slices[n_left++] = slice;
    } else {
      give_up(s, writable.error());
    }
  }
  schedule_.n_slices = n_left;
}

void Engine::give_up(Session& s, const Error& error) {
  std::array<char, 512> text{};
  format_error(error, text.data(), text.size());
  log_.warning("session %u: %s", static_cast<u32>(&s - sessions_.data()), text.data());
  s.last_error = {error.status, error.hint};
  if (s.state == SessionState::generating) return finish(s, Finish::error, error.status);
  s.state = SessionState::idle;
  s.generation.fed_ns = 0;
}

// A part of it could not be read back. What stands before it stays, and so do the tokens: the next
// generation computes them anew. False where others hold the groups that it had shared with them:
// then none of its KV is left, and its tokens find places when those have ended (find_places()).
bool Engine::lose_kv(Session& s) {
  s.sequence.abandon();
  drop_save(s);
  const u32 n_pages = kv_stream_.first_lost_page(s.sequence);
  // An index is made anew from exact KV.
  const bool keeps = n_pages < s.sequence.n_groups() && !selector_.is_on();
  const bool is_cut = s.sequence.truncate(keeps ? n_pages * plan_.group_shape.page_tokens : 0);
  TARN_ASSERT(is_cut);  // between two pages
  note_cut(s);
  selector_.forget(static_cast<u32>(&s - sessions_.data()));
  s.turns.start_over(s.n_ids);
  if (s.sequence.reserve(s.n_pending())) return true;
  s.sequence.clear();
  return false;
}

// Whether all its tokens have a place in the KV. Only one whose KV was lost may have none.
bool Engine::find_places(Session& s) {
  if (s.sequence.n_reserved() >= s.n_ids) return true;
  s.sequence.abandon();
  return s.sequence.reserve(s.n_pending());
}

bool Engine::kv_failed(const Session& s) const {
  return kv_stream_.is_on() && kv_stream_.failed(static_cast<u32>(&s - sessions_.data()));
}

// Where answers are to be exact: what a selection computed is cut off, and its tokens become a part
// of the input that comes, as if somebody had cut the session there and fed them.
Result<void> Engine::redo_answer(SessionIdx idx) {
  Session& s = session(idx);
  if (!select_config_.exact_answers || s.sequence.n_slots() <= s.lossy_from) return {};
  const u32 begin = s.lossy_from;
  s.sequence.abandon();
  drop_save(s);
  if (const Result<void> is_cut = cut(s, begin); !is_cut) {
    (void)find_places(s);
    return is_cut;
  }
  selector_.truncate(idx, begin);
  s.turns.truncate(begin);
  s.turns.feed(begin, s.n_ids - begin);
  s.n_published = std::min(s.n_published, begin);
  return {};
}

// Rows are in the KV; pages that they filled get their names. What a selection computed would be
// taken for exact under the key of its tokens: it gets one of its own.
void Engine::commit(Session& s, u32 n_rows) {
  const u32 page_tokens = plan_.group_shape.page_tokens;
  const u32 n_pages_before = s.sequence.n_slots() / page_tokens;
  s.sequence.commit(n_rows);
  if (!kv_stream_.keeps_sessions()) return;
  const u32 n_pages = s.sequence.n_slots() / page_tokens;
  const u32 n_exact = std::min(n_pages, s.lossy_from / page_tokens);
  reuse::SessionStore& sessions = kv_stream_.sessions();
  sessions.name_pages(s.sequence, s.ids, n_pages_before, n_exact);
  sessions.name_unshared(s.sequence, s.ids, std::max(n_pages_before, n_exact), n_pages);
}

// What a selection computed may be gone with what was cut off.
void Engine::note_cut(Session& s) {
  if (s.sequence.n_slots() <= s.lossy_from) s.lossy_from = Session::kExact;
}

// Of a row of a generated token, which still is pending.
void Engine::count_reads(Session& s, const step::Run& run) {
  if (!run.is_generated) return;
  const u32 n_visible = batch_.visible[run.row_begin];
  const u32 n_read = run.selects ? selector_.n_read(run.session) : n_visible;
  s.generation.kv_reads.add(n_read, n_visible, run.selects);
  status_.counters.kv_reads.add(n_read, n_visible, run.selects);
}

// Rows whose KV failed do not count; their sessions end what they do. Nor do rows of a session that
// was told its end.
void Engine::commit_rows() {
  for (const step::Run& run : batch_.runs) {
    Session& s = session(run.session);
    if (s.is_dropped) continue;
    if (!kv_failed(s)) {
      if (run.selects) s.lossy_from = std::min(s.lossy_from, s.sequence.n_slots());
      count_reads(s, run);
      commit(s, run.n_rows);
      selector_.commit(run.session);
      const bool ends_turn = s.state == SessionState::generating && s.n_ids == s.turns.n_fed() &&
                             s.sequence.n_slots() == s.n_ids;
      if (ends_turn) selector_.end_turn(run.session, s.sequence, s.n_ids);
      continue;
    }
    (void)lose_kv(s);
    give_up(s, kv_stream_.error());
  }
}

// Sequence::truncate(), with what it reopens or copies in memory.
Result<void> Engine::cut(Session& s, u32 n_slots) {
  constexpr const char* kNoGroup =
      "no KV group is free to copy the shared tail: end another session";
  drop_save(s);  // its pages are about to be others
  if (!kv_stream_.is_on()) {
    if (!s.sequence.truncate(n_slots)) {
      return fail({.status = Status::would_block, .hint = kNoGroup});
    }
    note_cut(s);
    return {};
  }
  const Result<void> prepared = kv_stream_.prepare_cut(s.sequence, n_slots);
  if (!prepared && prepared.error().status == Status::io_failed) {
    if (!lose_kv(s)) return fail(prepared.error());
    s.sequence.abandon();
    return {};
  }
  TARN_CHECK(prepared);
  const bool is_cut = s.sequence.truncate(n_slots);
  kv_stream_.end_cut();
  if (!is_cut) return fail({.status = Status::would_block, .hint = kNoGroup});
  note_cut(s);
  return {};
}

KvStats Engine::kv_stats() const {
  return {kv_stream_.stats(), kv_stream_.extents().stats(), kv_stream_.store().stats()};
}

// What is in memory goes on; who looks at nothing but answers hears it here.
void Engine::tell_store() {
  if (!kv_stream_.take_worse_store()) return;
  std::array<char, 512> why{};
  format_error(kv_stream_.store().why(), why.data(), why.size());
  log_.warning("the store is %s from now on: %s", kv_stream_.store_name(), why.data());
}

// What was lost is known by no name: a session of it is not found, or computed anew in part.
void Engine::tell_lost_records() {
  if (!kv_stream_.may_have_lost_sessions()) return;
  const store::StoreStats stats = kv_stream_.store().stats();
  if (stats.labels_lost) {
    log_.warning(
        "the store's file had no readable label and begins anew: the sessions that it "
        "kept are lost");
    return;
  }
  log_.warning(
      "%u records of the store were unreadable when it was opened: saved sessions may be "
      "lost, or computed anew in part",
      stats.n_unread_at_start + stats.n_damaged_at_start);
}

void Engine::trace_disk(const KvStats& stats_before) {
  const kv::MoverStats& after = kv_stream_.stats();
  const kv::MoverStats& before = stats_before.moved;
  const kv::ExtentStats& extents = kv_stream_.extents().stats();
  const kv::ExtentStats& extents_before = stats_before.extents;
  const store::StoreStats store = kv_stream_.store().stats();
  const u64 bytes_extents = extents.bytes_read - extents_before.bytes_read;
  trace_.disk = {
      .bytes_read = store.bytes_read - stats_before.store.bytes_read,
      .bytes_written = store.bytes_written - stats_before.store.bytes_written,
      .wait_ns = after.wait_ns - before.wait_ns + extents.wait_ns - extents_before.wait_ns,
      .n_hits = after.n_hits - before.n_hits,
      .n_waited = after.n_waited - before.n_waited,
      .n_far_slots = trace_.disk.n_far_slots,
      .n_cached_slots = trace_.disk.n_cached_slots,
      .n_sector_reads = after.n_gather_reads - before.n_gather_reads,
      .n_extent_reads = extents.n_reads - extents_before.n_reads,
      .bytes_sectors = after.bytes_gathered - before.bytes_gathered + bytes_extents,
      .bytes_of_slots = after.bytes_gathered_used - before.bytes_gathered_used +
                        extents.bytes_used - extents_before.bytes_used,
      .bytes_here = after.bytes_gathered_here - before.bytes_gathered_here};
}

}  // namespace tarn::engine
