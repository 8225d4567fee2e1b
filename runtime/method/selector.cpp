#include "runtime/method/selector.h"

#include <algorithm>
#include <new>
#include <utility>

#include "platform/base/assert.h"
#include "runtime/method/selector_parts.h"

namespace tarn::method {

// ---- Memory ---------------------------------------------------------------------------------

void Selector::init(const SelectorArgs& args) {
  static_assert(sizeof(Session) <= kSelectSessionBytes);
  static_assert(alignof(Session) <= Carver::kAlignment);
  args_ = args;
  spare_ = nullptr;
  spare_user_ = nullptr;
  const SelectShape& shape = *args.shape;
  init_caches();
  TARN_ASSERT(shape.n_heads > 0);
  const u64 offset = shape.n_sets * shape.set_bytes;  // of the sessions, behind the sets
  TARN_ASSERT(offset + args.shape->in.sessions_max * kSelectSessionBytes <= args.indexes.size());
  sessions_ = args.indexes.data() + offset;
  Carver carver(args.indexes);
  for (u32 set = 0; set < shape.n_sets; ++set) {
    const auto heads = carver.take<Reader*>("", shape.n_heads);
    const auto readers = carver.take<std::byte>("", shape.n_heads * shape.reader_bytes);
    const auto regions = carver.take<std::byte>("", shape.n_heads * shape.index_bytes);
    for (u32 head = 0; head < shape.n_heads; ++head) {
      heads[head] =
          method_of(*args.config)
              .make(&readers[head * shape.reader_bytes],
                    {.config = *args.config,
                     .keys = {args.spec->head_dim, args.spec->adjacent_dims()},
                     .capacity_tokens = shape.in.context_tokens,
                     .head = head,
                     .region = regions.subspan(head * shape.index_bytes, shape.index_bytes)});
    }
    if (set == args.shape->in.sessions_max) {
      spare_ = heads.data();
      continue;
    }
    auto* s = new (sessions_ + set * kSelectSessionBytes) Session();
    s->life =
        IndexLife(budget_rule(*args.config), args.config->code_bits, args.config->swap_tokens);
    s->heads = heads.data();
  }
}

void Selector::init_caches() {
  const CachesShape& shape = args_.caches_shape;
  caches_ = {};
  if (shape.n_slots == 0) return;
  const u64 n = u64{args_.shape->in.sessions_max} * args_.shape->n_heads;
  const bool is_lru = args_.config->cache_policy == CachePolicy::lru;
  const u32 keep_shift = is_lru ? kv::SlotCache::kKeepShift : kv::SlotCache::kKeepShiftLong;
  Carver carver(args_.caches);
  caches_ = carver.take<kv::SlotCache>("", n);
  for (kv::SlotCache& cache : caches_) {
    new (&cache) kv::SlotCache();
    cache.init(shape.n_slots, 2 * args_.shape->in.group.vector_bytes,
               carver.take<std::byte>("", shape.head_bytes), keep_shift);
  }
}

// Of a session; empty where there is none.
std::span<kv::SlotCache> Selector::caches(u32 session) const {
  if (caches_.empty()) return {};
  const u64 n_heads = args_.shape->n_heads;
  return caches_.subspan(session * n_heads, n_heads);
}

u32 Selector::idx_of(const Session& s) const {
  const auto* at = reinterpret_cast<const std::byte*>(&s);
  return static_cast<u32>(static_cast<u64>(at - sessions_) / kSelectSessionBytes);
}

Selector::Session& Selector::session(u32 idx) const {
  return *std::launder(reinterpret_cast<Session*>(sessions_ + u64{idx} * kSelectSessionBytes));
}

const PqIndex& Selector::pq_index(u32 idx, u32 head) const {
  return pq_of(session(idx).heads[head]);
}

Selector::Scratch Selector::scratch(u32 worker_idx) const {
  const SelectShape& shape = *args_.shape;
  Carver carver(args_.scratch.subspan(worker_idx * shape.scratch_bytes(), shape.scratch_bytes()));
  const u64 gather_pages = ceil_div(kGatherTokens, args_.shape->in.group.page_tokens);
  Scratch out{};
  out.search = carver.take<std::byte>("", shape.search_bytes);
  out.train = carver.take<std::byte>("", shape.train_bytes);
  out.slots = carver.take<u32>("", shape.slots_bytes / sizeof(u32));
  out.pages = carver.take<const u8*>("", args_.shape->in.pages_max()).data();
  if (args_.device != nullptr) return out;
  out.gathered = carver.take<u8>("", gather_pages * args_.shape->in.group.page_bytes()).data();
  out.gathered_pages = carver.take<const u8*>("", gather_pages).data();
  for (u64 page = 0; page < gather_pages; ++page) {
    out.gathered_pages[page] = out.gathered + page * args_.shape->in.group.page_bytes();
  }
  out.state = carver.take<f32>("", shape.state_bytes / sizeof(f32)).data();
  return out;
}

Selector::Fetched Selector::fetched(u32 kv_head) const {
  const SelectShape& shape = *args_.shape;
  const kv::GroupShape& group = args_.shape->in.group;
  const u64 offset =
      args_.shape->in.n_workers * shape.scratch_bytes() + kv_head * shape.fetched_bytes;
  Carver carver(args_.scratch.subspan(offset, shape.fetched_bytes));
  const u64 n_pages = ceil_div(shape.n_chosen_max, group.page_tokens);
  Fetched out{};
  out.bytes = carver.take<u8>("", n_pages * group.page_bytes()).data();
  out.slots = carver.take<u32>("", shape.n_chosen_max);
  out.wanted = carver.take<kv::WantedSlot>("", shape.n_chosen_max);
  out.missing = carver.take<kv::WantedSlot>("", shape.n_chosen_max);
  out.found = carver.take<kv::SlotCache::Found>("", shape.n_chosen_max);
  out.places = carver.take<kv::ExtentWant>("", shape.n_chosen_max);
  out.pages = carver.take<const u8*>("", n_pages).data();
  for (u64 page = 0; page < n_pages; ++page)
    out.pages[page] = out.bytes + page * group.page_bytes();
  return out;
}

Selector::LayerTable Selector::layer_table() const {
  const SelectShape& shape = *args_.shape;
  const u32 n = args_.spec->n_kv_heads;
  const u64 offset = args_.shape->in.n_workers * shape.scratch_bytes() + n * shape.fetched_bytes;
  Carver carver(args_.scratch.subspan(offset, fetch_table_bytes(n)));
  return {.n_chosen = carver.take<u32>("", n),
          .n_missing = carver.take<u32>("", n),
          .found = carver.take<std::span<const kv::SlotCache::Found>>("", n),
          .wanted = carver.take<std::span<const kv::WantedSlot>>("", n),
          .out = carver.take<u8*>("", n),
          .readings = carver.take<kv::ExtentReading>("", n)};
}

std::byte* Selector::sample_of(u32 kv_head) const {
  const SelectShape& shape = *args_.shape;
  const u64 head_bytes = shape.sample_bytes / args_.spec->n_kv_heads;
  return args_.scratch.data() + args_.shape->in.n_workers * shape.scratch_bytes() +
         kv_head * head_bytes;
}

// Keys of a window; `head` counts (cache layer, KV head) pairs.
KeyPages Selector::key_pages(const kv::Sequence& sequence, u32 head, const Window& window,
                             const u8** pages) const {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 n_groups = window.group_end - window.group_begin;
  if (args_.device == nullptr) {
    sequence.pages(head / n_kv_heads, head % n_kv_heads, window.group_begin, window.group_end,
                   {pages + window.group_begin, n_groups});
  } else {
    const kv::GroupShape& group = args_.shape->in.group;
    const u8* page = args_.device->window() + head % n_kv_heads * group.page_bytes();
    for (u32 i = 0; i < n_groups; ++i) {
      pages[window.group_begin + i] = page + i * group.group_bytes();
    }
  }
  return {.type = args_.shape->in.kv_type,
          .pages = pages,
          .page_tokens = args_.shape->in.group.page_tokens,
          .head_dim = args_.spec->head_dim};
}

// ---- Sessions -------------------------------------------------------------------------------

void Selector::forget(u32 idx) {
  if (!is_on()) return;
  Session& s = session(idx);
  drop_job(s);
  s.next = {};
  s.turn_end = 0;
  erase_codebooks(s, std::exchange(s.used_key, {}));
  s.life.forget();
  for (kv::SlotCache& cache : caches(idx)) cache.clear();
  forget_extents(s);
  s.named_key = {};
}

void Selector::truncate(u32 idx, u32 n_tokens) {
  if (!is_on()) return;
  Session& s = session(idx);
  u32 cache_head = 0;
  for (kv::SlotCache& cache : caches(idx)) truncate_cache(s, cache_head++, n_tokens, cache);
  truncate_extents(s, n_tokens);
  if (n_tokens < s.turn_end) s.turn_end = 0;
  s.waits_at = 0;
  const u32 n_rows_used = s.life.n_rows_used();
  const bool was_whole = !s.is_restoring && !overwrites(s);
  const bool keeps = s.life.truncate(n_tokens), uses = keeps && !s.life.is_dense();
  if (uses && !was_whole) {
    if (!s.is_restoring) begin_restoring(s);
    return;
  }
  const bool keeps_job = keeps && (uses || n_rows_used == 0) && !s.is_restoring &&
                         s.n_rows == s.life.n_rows_clustering();
  const store::Key key = uses ? store::Key{} : std::exchange(s.used_key, {});
  if (!keeps_job) drop_job(s);
  if (keeps && !uses && n_rows_used > 0 && was_whole) {
    // A swap that is undone leaves its index, finished.
    s.n_rows = n_rows_used;
    s.target = s.heads;
    s.n_units_done = n_units();
    s.job_key = key;
  } else {
    erase_codebooks(s, key);
    if (keeps && !keeps_job) await_clustering(s);
  }
  if (keeps) truncate_heads(s);
}

// Of the index in use and of the job's, what the middle has lost. A row that did not count may have
// coded more than the clustered rows of either.
void Selector::truncate_heads(Session& s) {
  const bool has_own = n_units() == 0 || !s.life.is_dense() || s.target == s.heads;
  const u32 middle_end = s.life.segments().middle_end;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    if (has_own) s.heads[head]->truncate(middle_end);
    if (s.target != nullptr) s.target[head]->truncate(middle_end);
  }
  s.n_coded = std::min(s.n_coded, middle_end - s.life.segments().middle_begin);
}

void Selector::copy(u32 from, u32 to, const kv::Sequence& sequence) {
  if (!is_on()) return;
  const Session& source = session(from);
  Session& s = session(to);
  for (kv::SlotCache& cache : caches(to)) cache.clear();
  forget_extents(s);  // they follow what was there before
  drop_job(s);
  s.next = {};
  s.life = source.life;
  s.sequence = &sequence;
  s.turn_end = source.turn_end;
  s.used_key = {};  // what was written has one owner
  if (!s.life.is_dense() && (source.is_restoring || overwrites(source))) return begin_restoring(s);
  const bool has_first =
      s.life.is_dense() && s.life.is_clustering() && is_made(source, s.life.n_rows_clustering());
  if (has_first) {
    s.n_rows = source.n_rows;
    s.target = s.heads;
    s.n_units_done = n_units();
  } else {
    await_clustering(s);  // anew, with the same outcome
  }
  if (s.life.is_dense() && !has_first) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    s.heads[head]->copy_from(*source.heads[head]);
  }
  s.n_coded = source.n_coded;
  s.n_counted = source.n_counted;
  if (args_.device != nullptr && n_units() > 0 && !s.life.is_dense()) {
    args_.device->copy(from, to);
  }
}

bool Selector::has_index(u32 idx) const {
  return is_on() && (!session(idx).life.is_dense() || session(idx).life.is_clustering());
}

KeptIndex Selector::kept(u32 idx) const {
  if (!has_index(idx)) return {};
  const Session& s = session(idx);
  return {.life = s.life.kept(), .turn_end = s.turn_end, .key = s.used_key};
}

// Whether the turn may have waited for what is under way.
static bool holds_together(const KeptIndex& kept, u32 n_slots) {
  if (kept.turn_end == 0) return true;
  const KeptLife& life = kept.life;
  return life.rows_pending != 0 && kept.turn_end <= u64{n_slots} + 1 &&
         kept.turn_end > life.middle_end && kept.turn_end >= life.trigger_at;
}

bool Selector::take_up(u32 idx, const kv::Sequence& sequence, const KeptIndex& kept, u32 n_slots,
                       u32 n_tokens) {
  if (!is_on()) return false;
  TARN_ASSERT(args_.device == nullptr);  // what keeps sessions has its KV in the host's frames
  forget(idx);
  Session& s = session(idx);
  if (!holds_together(kept, n_slots)) return false;
  if (!s.life.take_up(kept.life, n_slots, n_tokens)) return false;
  s.sequence = &sequence;
  s.turn_end = kept.turn_end;
  s.used_key = s.named_key = kept.key;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) s.heads[head]->forget();
  if (!s.life.is_dense() && n_units() > 0) {
    begin_restoring(s);
  } else {
    await_clustering(s);
  }
  return true;
}

// ---- Their lives -----------------------------------------------------------------------------

void Selector::commit(u32 idx) {
  if (!is_on() || session(idx).next.heads == nullptr) return;
  Session& s = session(idx);
  const bool swaps = s.next.swaps;
  s.life = s.next.life;
  s.turn_end = 0;
  s.next.heads = nullptr;
  if (swaps) {
    if (s.target == spare_ && spare_user_ == &s) std::swap(s.heads, spare_);
    const store::Key before = std::exchange(s.used_key, std::exchange(s.job_key, {}));
    drop_job(s);
    erase_codebooks(s, before);
  }
  if (s.n_rows != s.life.n_rows_clustering()) await_clustering(s);
}

// To the device that chooses by it, if there is one.
Result<void> Selector::send_index(Session& s) {
  if (args_.device == nullptr || n_units() == 0) return {};
  TARN_CHECK(args_.device->put(idx_of(s), pq_of(s.heads[0]).region()));
  s.n_coded = s.n_counted = pq_of(s.heads[0]).n_tokens();
  return {};
}

void Selector::end_turn(u32 idx, const kv::Sequence& sequence, u32 n_tokens) {
  if (!is_on()) return;
  Session& s = session(idx);
  s.sequence = &sequence;
  s.turn_end = n_tokens;
  if (s.life.is_clustering()) return;  // its swap may be due: the next row's proposal has both
  while (s.life.advance(n_tokens) != IndexEvent::none) {
  }
  s.turn_end = 0;
  if (!s.is_restoring) await_clustering(s);
}

// What the turn's end, if one was left, and the row of this token make of the life. An index that
// another one replaces before any row reads it is not made.
void Selector::propose(Session& s, u32 n_tokens) {
  s.next = {.life = s.life};
  for (const u32 n : {s.turn_end, n_tokens}) {
    if (n == 0) continue;
    IndexEvent event = IndexEvent::none;
    while ((event = s.next.life.advance(n)) != IndexEvent::none) {
      s.next.swaps = s.next.swaps || event == IndexEvent::swap;
    }
  }
  const u32 n_rows = s.next.life.n_rows_used();
  if (s.next.swaps && !s.is_restoring && s.n_rows != n_rows) start_job(s, n_rows);
}

void Selector::begin_step(std::span<const step::Ready> ready) {
  ++step_idx_;
  for (const step::Ready& each : ready) {
    Session& s = session(each.session);
    s.step_idx = step_idx_;
    s.next = {};
  }
}

// Rows on a device count as they begin, so nobody is told of an end there.
void Selector::tick() const {
  const bool may_drop = args_.host != nullptr && args_.device == nullptr;
  if (may_drop) (void)args_.host->tick(step::Pause::within_op);
}

Result<bool> Selector::make_index(u32 idx, u32 n_tokens, bool beside_prompt) {
  TARN_ASSERT(is_on());
  Session& s = session(idx);
  if (args_.device != nullptr) return false;
  s.is_stuck = false;
  propose(s, n_tokens);
  const bool is_due = s.is_restoring || s.next.swaps;
  if (s.waits_at != n_tokens) {
    const bool can_begin = !is_due && can_work(s, is_due);
    s.waits_at = n_tokens;
    s.n_units_due = can_begin ? units_of_step(s, n_tokens - 1, beside_prompt) : 0;
  }
  if (is_due ? !has_units_left(s) : s.n_units_due == 0) return false;
  const bool was_restoring = s.is_restoring;
  TARN_CHECK(run_units(s, 1, is_due));
  if (was_restoring) return true;  // what was under way begins behind that
  return is_due ? has_units_left(s) : --s.n_units_due > 0;
}

Result<bool> Selector::begin_row(u32 idx, const kv::Sequence& sequence, u32 n_tokens,
                                 bool beside_prompt) {
  TARN_ASSERT(is_on());
  Session& s = session(idx);
  s.sequence = &sequence;
  s.is_stuck = false;
  s.n_units_due = s.waits_at = 0;
  // Nothing is left to be made here, but with a device.
  if (s.is_restoring) TARN_CHECK(run_units(s, 2 * n_units(), /*is_due=*/true));
  propose(s, n_tokens);
  if (s.next.swaps) TARN_CHECK(run_units(s, n_units(), /*is_due=*/true));
  const bool swaps = s.next.swaps, selects = !s.next.life.is_dense();
  s.next.heads = swaps && s.target != nullptr ? s.target : s.heads;
  if (args_.device == nullptr) return selects;
  commit(idx);
  if (swaps) TARN_CHECK(send_index(s));
  if (can_work(s, /*is_due=*/false)) s.n_units_due = units_of_step(s, n_tokens, beside_prompt);
  return selects;
}

// As many a step as bring a job to its end before its index is used; beside a prompt only what is
// more than the steps that are left could do, each its share of the whole job.
u32 Selector::units_of_step(const Session& s, u32 n_tokens, bool beside_prompt) const {
  const u32 n_left = n_units() - s.n_units_done;
  const u32 n_steps = std::max(s.life.swap_at() - std::min(s.life.swap_at(), n_tokens), 1u);
  const u64 n_even = ceil_div(n_left, n_steps);
  const u64 n_later = ceil_div(n_units(), args_.config->swap_tokens) * (n_steps - 1);
  const u64 n_late = n_left - std::min<u64>(n_left, n_later);
  return static_cast<u32>(beside_prompt ? std::min(n_even, n_late) : n_even);
}

void Selector::offloaded_groups(u32 idx, u32* begin, u32* end) const {
  const Segments segments = session(idx).next.life.segments();
  const u32 page_tokens = args_.shape->in.group.page_tokens;
  *begin = static_cast<u32>(ceil_div(segments.middle_begin, page_tokens));
  *end = std::max(*begin, segments.middle_end / page_tokens);
}

u32 Selector::n_read(u32 idx) const {
  const Segments segments = session(idx).next.life.segments();
  const u32 n_chosen = std::min(session(idx).next.life.k(), segments.n_middle());
  return segments.n_sinks() + n_chosen + segments.n_local();
}

bool Selector::has_work() const {
  if (!is_on()) return false;
  for (u32 idx = 0; idx < args_.shape->in.sessions_max; ++idx) {
    if (can_work(session(idx), /*is_due=*/false)) return true;
  }
  return false;
}

Result<void> Selector::work() {
  for (u32 idx = 0; idx < args_.shape->in.sessions_max; ++idx) {
    Session& s = session(idx);
    if (!can_work(s, /*is_due=*/false)) continue;
    const Result<void> worked = run_units(s, 1, /*is_due=*/false);
    s.is_stuck = !worked.has_value();
    if (args_.device != nullptr) return worked;
    break;
  }
  return {};
}

bool Selector::has_units_due() const {
  if (!is_on()) return false;
  for (u32 idx = 0; idx < args_.shape->in.sessions_max; ++idx) {
    if (session(idx).n_units_due > 0) return true;
  }
  return false;
}

Result<void> Selector::work_beside() {
  if (!is_on()) return {};
  TARN_ASSERT(args_.device != nullptr);
  bool was_due = false;
  for (u32 idx = 0; idx < args_.shape->in.sessions_max; ++idx) {
    Session& s = session(idx);
    const u32 n_due = std::exchange(s.n_units_due, 0);
    if (n_due == 0 || !can_work(s, /*is_due=*/false)) continue;
    was_due = true;
    TARN_CHECK(run_units(s, n_due, /*is_due=*/false));
  }
  return was_due ? Result<void>() : work();
}

DeviceRow Selector::take_row(u32 idx) {
  TARN_ASSERT(args_.device != nullptr);
  Session& s = session(idx);
  TARN_ASSERT(!s.life.is_dense());
  const Segments segments = s.life.segments();
  const DeviceRow row{segments, s.life.k(), s.n_coded, s.n_counted};
  s.n_coded = s.n_counted = segments.n_middle();
  const u32 n_chosen = std::min(segments.n_middle(), row.k);
  of_workers_[0].spent.n_slots +=
      u64{segments.n_sinks() + n_chosen + segments.n_local()} * args_.shape->n_heads;
  return row;
}

}  // namespace tarn::method
