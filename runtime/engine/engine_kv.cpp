// What becomes of sessions when their KV is committed, cut or lost.
#include <algorithm>
#include <array>

#include "platform/base/assert.h"
#include "platform/cpu/crc32c.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/take.h"

namespace tarn::engine {

using plan::RegionId;

static_assert(kSessionsMax <= kv::KvCache::kSessionsMax);

Result<void> Engine::open_tiers(const OpenArgs& args, IoKind io_kind) {
  const plan::TierShape& tiers = plan_.tiers;
  const bool keeps_sessions = tiers.store.keeps;
  Carver carver(region(RegionId::store));
  TARN_CHECK(kv_.open_tiers(
      {.window_groups = tiers.window_groups,
       .moves_max = plan::kTierMovesMax,
       .frames = region_or_registered(RegionId::kv_groups, exec::GpuPlacement::Registered::frames),
       .extents = tiers.extents,
       .extents_memory = selector_.extents_memory(),
       .store = {.folder = args.config.store.path.data(),
                 .file = keeps_sessions ? kSessionsFile : kSpillFile,
                 .io_kind = io_kind,
                 .io_in_flight = plan::kTierIoInFlight,
                 .io = args.store_io,
                 .clock = clock_,
                 .log = log_,
                 .limits = tiers.store,
                 .memory = kv::TierStoreMemory::carve(carver, tiers.store)},
       .guest = &archive_,
       .host = this}));
  if (keeps_sessions) {
    const model::Weights& weights = model_.weights;
    const u32 n_factors = weights.rope_factors != nullptr ? model_.spec.n_rot / 2 : 0;
    archive_.init(
        {.kv = &kv_,
         .identity = reuse::kv_identity(
             {.spec = &model_.spec,
              .content_hash = weights.content_hash,
              .rope_factors = {weights.rope_factors, n_factors},
              .kv_type = static_cast<u32>(kv_type_),
              .page_tokens = plan_.group_shape.page_tokens,
              .numerics_id = executor_.on_gpu() ? reuse::kGpuNumericsId : reuse::kCpuNumericsId}),
         .crc = &crc32c_ways()[0],
         .clock = clock_,
         .log = log_,
         .checkpoint_ns = u64{args.config.store.checkpoint_ms} * 1'000'000,
         .spills_max = plan::kTierMovesMax,
         .memory = reuse::SaveMemory::carve(carver, tiers.saves),
         .selector = &selector_});
  }
  kv_.tiers().store.log_state();
  if (keeps_sessions) kv_.tiers().store.log_lost_records();
  log_.info("kv: %u of %u groups in memory, the rest in %s", tiers.n_frames, plan_.groups_max,
            args.config.store.path.data());
  return {};
}

// Every row of the step gets its place in memory. A session for which there is none ends what it
// does; the others go on.
void Engine::reserve_frames() {
  u32 n_left = 0;
  for (const Slice& slice : slices()) {
    Session& s = session(slice.session);
    const Result<void> writable = kv_.reserve_frames(s.sequence, slice.n_rows);
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
// generation computes them anew. An index is made anew from exact KV, so where rows select nothing
// stays. False where others hold the groups that it had shared with them: then none of its KV is
// left, and its tokens find places when those have ended (KvCache::reserve_slots()).
bool Engine::lose_kv(Session& s) {
  s.sequence.abandon();
  archive_.drop(s.saved);
  kv_.cut_lost(s.sequence, /*keeps_whole_pages=*/!selector_.is_on());
  note_cut(s);
  selector_.forget(static_cast<u32>(&s - sessions_.data()));
  s.turns.start_over(s.n_ids);
  if (s.sequence.reserve(s.n_pending())) return true;
  s.sequence.clear();
  return false;
}

// Where answers are to be exact: what a selection computed is cut off, and its tokens become a part
// of the input that comes, as if somebody had cut the session there and fed them.
Result<void> Engine::redo_answer(SessionIdx idx) {
  Session& s = session(idx);
  if (!select_config_.exact_answers || s.sequence.n_slots() <= s.first_approx_slot) return {};
  const u32 begin = s.first_approx_slot;
  s.sequence.abandon();
  archive_.drop(s.saved);
  if (const Result<void> is_cut = cut(s, begin); !is_cut) {
    (void)kv::KvCache::reserve_slots(s.sequence, s.n_ids);
    return is_cut;
  }
  selector_.truncate(idx, begin);
  s.turns.truncate(begin);
  s.turns.feed(begin, s.n_ids - begin);
  s.saved.n_slots = std::min(s.saved.n_slots, begin);
  return {};
}

void Engine::commit(Session& s, u32 n_rows) {
  const u32 n_before = s.sequence.n_slots();
  s.sequence.commit(n_rows);
  if (archive_.is_on()) archive_.name_pages(s.sequence, s.ids, n_before, s.first_approx_slot);
}

// What a selection computed may be gone with what was cut off.
void Engine::note_cut(Session& s) {
  if (s.sequence.n_slots() <= s.first_approx_slot) s.first_approx_slot = Session::kNone;
}

// Of a row of a generated token, which still is pending.
void Engine::count_reads(Session& s, const step::Run& run) {
  if (!run.is_generated) return;
  const u32 n_visible = executor_.batch().visible[run.row_begin];
  const u32 n_read = run.selects ? selector_.parts().n_read(run.session) : n_visible;
  s.generation.kv_reads.add(n_read, n_visible, run.selects);
  status_.counters.kv_reads.add(n_read, n_visible, run.selects);
}

// Sessions whose KV failed end what they do.
void Engine::commit_rows() {
  for (const step::Run& run : executor_.batch().runs) {
    if (run.state == step::RunState::dropped) continue;
    Session& s = session(run.session);
    if (run.state == step::RunState::failed) {
      (void)lose_kv(s);
      give_up(s, kv_.error());
      continue;
    }
    if (run.selects) s.first_approx_slot = std::min(s.first_approx_slot, s.sequence.n_slots());
    count_reads(s, run);
    commit(s, run.n_rows);
    selector_.commit(run.session);
    const bool ends_turn = s.state == SessionState::generating && s.n_ids == s.turns.n_fed() &&
                           s.sequence.n_slots() == s.n_ids;
    if (ends_turn) selector_.end_turn(run.session, s.sequence, s.n_ids);
  }
}

// What is lost meanwhile is computed anew.
Result<void> Engine::cut(Session& s, u32 n_slots) {
  archive_.drop(s.saved);  // its pages are about to be others
  const Result<void> is_cut = kv_.truncate(s.sequence, n_slots);
  if (!is_cut && is_cut.error().status == Status::io_failed) {
    if (!lose_kv(s)) return fail(is_cut.error());
    s.sequence.abandon();
    return {};
  }
  TARN_CHECK(is_cut);
  note_cut(s);
  return {};
}

void Engine::trace_disk(const kv::KvStats& before) {
  const kv::KvStats after = kv_.stats();
  const u64 bytes_extents = after.extents.bytes_read - before.extents.bytes_read;
  trace_.disk = {
      .bytes_read = after.store.bytes_read - before.store.bytes_read,
      .bytes_written = after.store.bytes_written - before.store.bytes_written,
      .wait_ns = after.moved.wait_ns - before.moved.wait_ns + after.extents.wait_ns -
                 before.extents.wait_ns,
      .n_hits = after.moved.n_hits - before.moved.n_hits,
      .n_waited = after.moved.n_waited - before.moved.n_waited,
      .n_far_slots = trace_.disk.n_far_slots,
      .n_cached_slots = trace_.disk.n_cached_slots,
      .n_sector_reads = after.moved.n_gather_reads - before.moved.n_gather_reads,
      .n_extent_reads = after.extents.n_reads - before.extents.n_reads,
      .bytes_sectors = after.moved.bytes_gathered - before.moved.bytes_gathered + bytes_extents,
      .bytes_of_slots = after.moved.bytes_gathered_used - before.moved.bytes_gathered_used +
                        after.extents.bytes_used - before.extents.bytes_used,
      .bytes_here = after.moved.bytes_gathered_here - before.moved.bytes_gathered_here};
}

}  // namespace tarn::engine
