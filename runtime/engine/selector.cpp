#include "runtime/engine/selector.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/engine/take.h"
#include "runtime/select/random_at.h"

namespace tarn::engine {
namespace {

using select::HeadIndex;
using select::IndexEvent;

constexpr u64 kRandomSeed = 20240715;  // of method random

}  // namespace

struct Selector::Session {
  select::IndexLife life{};
  const kv::Sequence* sequence = nullptr;
  HeadIndex* heads = nullptr;   // [n_heads], in use, or what a build fills
  HeadIndex* target = nullptr;  // what the job fills; nullptr: it has not begun, or there is none
  u32 n_rows = 0;               // that it clusters
  u32 n_units_done = 0;
  u32 n_tokens = 0;  // of the last row
  u32 turn_end = 0;  // tokens of a turn that ended while a job was under way; 0: none
  bool is_rebuild = false;
  bool has_job = false;   // triggered, and units are left
  bool is_stuck = false;  // the disk failed it where nobody waited: the next row tells
};

struct Selector::Scratch {
  std::span<std::byte> search, train;
  std::span<u32> slots;
  const u8** pages;
  u8* gathered;
  const u8** gathered_pages;
  f32* state;
};

// What a layer's heads chose of KV over memory and disk, and got: a head's piece.
struct Selector::Fetched {
  u8* bytes;             // K and V, in the order of attention
  const u8** pages;      // of them
  std::span<u32> slots;  // chosen
  std::span<kv::WantedSlot> wanted;
};

// And of all its heads.
struct Selector::LayerTable {
  std::span<u32> n_chosen;
  std::span<u32> n_near;  // wanted slots of the sinks' groups
  std::span<u32> n_far;   // and behind them those that the cache has not
  std::span<std::span<const kv::WantedSlot>> wanted;
  std::span<u8*> out;
};

namespace {

class ResidentSlots final : public SlotSource {
 public:
  ResidentSlots(const u8* const* pages, u32 page_tokens, u64 slot_bytes)
      : pages_(pages), page_tokens_(page_tokens), slot_bytes_(slot_bytes) {}

  const u8* const* pages_of(u32, std::span<const u32> slots, u8* tile,
                            const u8* const* tile_pages) const override {
    constexpr u64 kAhead = 16;  // slots asked for before they are copied
    for (u64 i = 0; i < slots.size(); ++i, tile += slot_bytes_) {
      if (i + kAhead < slots.size()) {
        const u8* next = slot(slots[i + kAhead]);
        for (u64 at = 0; at < slot_bytes_; at += 64) __builtin_prefetch(next + at);
      }
      std::memcpy(tile, slot(slots[i]), slot_bytes_);
    }
    return tile_pages;
  }

 private:
  const u8* slot(u32 s) const { return pages_[s / page_tokens_] + s % page_tokens_ * slot_bytes_; }

  const u8* const* pages_;
  u32 page_tokens_;
  u64 slot_bytes_;
};

// They lie there already.
class FetchedSlots final : public SlotSource {
 public:
  FetchedSlots(const u8* const* pages, u32 page_tokens)
      : pages_(pages), page_tokens_(page_tokens) {}
  const u8* const* pages_of(u32 first, std::span<const u32>, u8*, const u8* const*) const override {
    return pages_ + first / page_tokens_;
  }

 private:
  const u8* const* pages_;
  u32 page_tokens_;
};

}  // namespace

// ---- Memory ---------------------------------------------------------------------------------

void Selector::init(const SelectorArgs& args) {
  static_assert(sizeof(Session) <= plan::kSelectSessionBytes);
  static_assert(alignof(Session) <= kTakeAlignment);
  args_ = args;
  const plan::SelectShape& shape = args.plan->select;
  init_caches();
  TARN_ASSERT(shape.n_heads > 0);
  const u64 offset = shape.n_sets * shape.set_bytes;  // of the sessions, behind the sets
  TARN_ASSERT(offset + args.plan->sessions_max * plan::kSelectSessionBytes <= args.indexes.size());
  sessions_ = args.indexes.data() + offset;
  Bump bump(args.indexes);
  for (u32 set = 0; set < shape.n_sets; ++set) {
    const auto heads = take<HeadIndex>(bump, shape.n_heads);
    const auto regions = take<std::byte>(bump, shape.n_heads * shape.index_bytes);
    for (u32 head = 0; head < shape.n_heads; ++head) {
      new (&heads[head]) HeadIndex();
      heads[head].init(*args.config, args.spec->head_dim, args.plan->context_tokens,
                       regions.subspan(head * shape.index_bytes, shape.index_bytes));
    }
    if (set == args.plan->sessions_max) {
      spare_ = heads.data();
      continue;
    }
    auto* s = new (sessions_ + set * plan::kSelectSessionBytes) Session();
    s->life = select::IndexLife(select::budget_rule(*args.config), args.config->code_bits,
                                args.config->swap_tokens);
    s->heads = heads.data();
  }
}

void Selector::init_caches() {
  const plan::TierShape& tiers = args_.plan->tiers;
  caches_ = {};
  if (tiers.cache_slots == 0) return;
  const u64 n = u64{args_.plan->sessions_max} * args_.plan->select.n_heads;
  Bump bump(args_.caches);
  caches_ = take<kv::SlotCache>(bump, n);
  for (kv::SlotCache& cache : caches_) {
    new (&cache) kv::SlotCache();
    cache.init(tiers.cache_slots, 2 * args_.plan->group_shape.vector_bytes,
               take<std::byte>(bump, tiers.cache_head_bytes));
  }
}

// Of a session; empty where there is none.
std::span<kv::SlotCache> Selector::caches(u32 session) const {
  if (caches_.empty()) return {};
  const u64 n_heads = args_.plan->select.n_heads;
  return caches_.subspan(session * n_heads, n_heads);
}

Selector::Session& Selector::session(u32 idx) const {
  return *std::launder(
      reinterpret_cast<Session*>(sessions_ + u64{idx} * plan::kSelectSessionBytes));
}

Selector::Scratch Selector::scratch(u32 worker_idx) const {
  const plan::SelectShape& shape = args_.plan->select;
  Bump bump(args_.scratch.subspan(worker_idx * shape.scratch_bytes(), shape.scratch_bytes()));
  const u64 page_tokens = args_.plan->group_shape.page_tokens;
  const u64 gather_pages = ceil_div(plan::kGatherTokens, page_tokens);
  Scratch out{};
  out.search = take<std::byte>(bump, shape.search_bytes);
  out.train = take<std::byte>(bump, shape.train_bytes);
  out.slots = take<u32>(bump, args_.plan->context_tokens);
  out.pages = take<const u8*>(bump, args_.plan->pages_max).data();
  const u64 gathered_bytes = gather_pages * args_.plan->group_shape.page_bytes();
  out.gathered = take<u8>(bump, gathered_bytes).data();
  out.gathered_pages = take<const u8*>(bump, gather_pages).data();
  for (u64 page = 0; page < gather_pages; ++page) {
    out.gathered_pages[page] = out.gathered + page * args_.plan->group_shape.page_bytes();
  }
  out.state = take<f32>(bump, shape.state_bytes / sizeof(f32)).data();
  return out;
}

Selector::Fetched Selector::fetched(u32 kv_head) const {
  const plan::SelectShape& shape = args_.plan->select;
  const kv::GroupShape& group = args_.plan->group_shape;
  const u64 offset = args_.plan->n_workers * shape.scratch_bytes() + kv_head * shape.fetched_bytes;
  Bump bump(args_.scratch.subspan(offset, shape.fetched_bytes));
  const u64 n_pages = ceil_div(shape.n_chosen_max, group.page_tokens);
  Fetched out{};
  out.bytes = take<u8>(bump, n_pages * group.page_bytes()).data();
  out.slots = take<u32>(bump, shape.n_chosen_max);
  out.wanted = take<kv::WantedSlot>(bump, shape.n_chosen_max);
  out.pages = take<const u8*>(bump, n_pages).data();
  for (u64 page = 0; page < n_pages; ++page)
    out.pages[page] = out.bytes + page * group.page_bytes();
  return out;
}

Selector::LayerTable Selector::layer_table() const {
  const plan::SelectShape& shape = args_.plan->select;
  const u32 n = args_.spec->n_kv_heads;
  const u64 offset = args_.plan->n_workers * shape.scratch_bytes() + n * shape.fetched_bytes;
  Bump bump(args_.scratch.subspan(offset, plan::fetch_table_bytes(n)));
  return {.n_chosen = take<u32>(bump, n),
          .n_near = take<u32>(bump, n),
          .n_far = take<u32>(bump, n),
          .wanted = take<std::span<const kv::WantedSlot>>(bump, n),
          .out = take<u8*>(bump, n)};
}

std::byte* Selector::sample_of(u32 kv_head) const {
  const plan::SelectShape& shape = args_.plan->select;
  const u64 head_bytes = shape.sample_bytes / args_.spec->n_kv_heads;
  return args_.scratch.data() + args_.plan->n_workers * shape.scratch_bytes() +
         kv_head * head_bytes;
}

// Keys of a window; `head` counts (cache layer, KV head) pairs.
select::KeyPages Selector::key_pages(const kv::Sequence& sequence, u32 head, const Window& window,
                                     const u8** pages) const {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  sequence.pages(head / n_kv_heads, head % n_kv_heads, window.group_begin, window.group_end,
                 {pages + window.group_begin, window.group_end - window.group_begin});
  return {.type = args_.kv_type,
          .pages = pages,
          .page_tokens = args_.plan->group_shape.page_tokens,
          .head_dim = args_.spec->head_dim};
}

// Calls fn(Window) for slots [slot_begin, slot_end) of a layer, in order.
template <class Fn>
Result<void> Selector::each_window(const kv::Sequence& sequence, u32 cache_layer, u32 slot_begin,
                                   u32 slot_end, Fn&& fn) {
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  const u32 group_end = static_cast<u32>(ceil_div(slot_end, page_tokens));
  for (u32 begin = slot_begin / page_tokens; begin < group_end;) {
    u32 n = group_end - begin;
    if (args_.kv_stream != nullptr) {
      TARN_TRY(n, args_.kv_stream->pin(sequence, cache_layer, begin, group_end));
    }
    fn(Window{.group_begin = begin,
              .group_end = begin + n,
              .slot_begin = std::max(slot_begin, begin * page_tokens),
              .slot_end = std::min(slot_end, (begin + n) * page_tokens)});
    if (args_.kv_stream != nullptr) {
      args_.kv_stream->unpin(sequence, cache_layer, begin, begin + n);
    }
    begin += n;
  }
  return {};
}

// ---- Sessions -------------------------------------------------------------------------------

void Selector::forget(u32 idx) {
  if (!is_on()) return;
  Session& s = session(idx);
  drop_job(s);
  s.turn_end = 0;
  s.life.forget();
  for (kv::SlotCache& cache : caches(idx)) cache.clear();
}

void Selector::truncate(u32 idx, u32 n_tokens) {
  if (!is_on()) return;
  Session& s = session(idx);
  for (kv::SlotCache& cache : caches(idx)) cache.truncate(n_tokens);
  if (n_tokens < s.turn_end) s.turn_end = 0;
  const bool was_used = !s.life.is_dense();
  const bool keeps = s.life.truncate(n_tokens);
  // A swap that is undone leaves its index, finished; a trigger, nothing.
  if (!s.life.is_clustering() || was_used == s.life.is_dense()) drop_job(s);
  // An index that was not finished yet, or not begun, is another life's or nothing.
  if (!keeps || (s.life.is_dense() && s.has_job)) return;
  const u32 middle_end = s.life.segments().middle_end;
  for (u32 head = 0; head < args_.plan->select.n_heads; ++head) {
    s.heads[head].truncate(*args_.config, middle_end);
  }
}

void Selector::copy(u32 from, u32 to, const kv::Sequence& sequence) {
  if (!is_on()) return;
  const Session& source = session(from);
  Session& s = session(to);
  for (kv::SlotCache& cache : caches(to)) cache.clear();
  drop_job(s);
  s.life = source.life;
  s.sequence = &sequence;
  s.turn_end = source.turn_end;
  s.is_rebuild = source.is_rebuild;
  s.n_rows = source.n_rows;
  const bool is_clustered = source.life.is_clustering() && !source.has_job && !source.is_rebuild;
  s.has_job = source.life.is_clustering() && !is_clustered;  // anew, with the same outcome
  if (s.life.is_dense() && !is_clustered) return;
  for (u32 head = 0; head < args_.plan->select.n_heads; ++head) {
    s.heads[head].copy_from(*args_.config, source.heads[head]);
  }
}

// ---- Clustering -----------------------------------------------------------------------------

u32 Selector::n_units() const {
  return args_.config->method == SelectMethod::pq ? args_.spec->n_cache_layers : 0;
}

void Selector::start_job(Session& s, const kv::Sequence& sequence, bool is_rebuild) {
  s.sequence = &sequence;
  s.is_rebuild = is_rebuild;
  s.n_rows = s.life.n_rows_clustering();
  s.has_job = n_units() > 0;
  s.target = nullptr;
  s.n_units_done = 0;
  if (is_rebuild) return;
  for (u32 head = 0; head < args_.plan->select.n_heads; ++head) s.heads[head].forget();
}

void Selector::drop_job(Session& s) {
  s.has_job = s.is_stuck = false;
  s.target = nullptr;
  s.n_units_done = 0;
  if (spare_user_ == &s) spare_user_ = nullptr;
}

void Selector::begin_training(Session& s, HeadIndex* target) {
  s.target = target;
  for (u32 head = 0; head < args_.plan->select.n_heads; ++head) {
    target[head].pq.start(s.life.segments().middle_begin);
    target[head].pq.begin_codebook(s.n_rows);
  }
}

// Not while another session's indexes stand in the spare set.
bool Selector::can_work(const Session& s) const {
  return s.has_job && !s.is_stuck &&
         (!s.is_rebuild || s.target != nullptr || spare_user_ == nullptr);
}

Result<void> Selector::run_units(Session& s, u32 n) {
  if (s.target == nullptr && !s.is_rebuild) begin_training(s, s.heads);
  if (s.target == nullptr) {
    TARN_ASSERT(spare_user_ == nullptr);
    spare_user_ = &s;
    begin_training(s, spare_);
  }
  for (; n > 0 && s.n_units_done < n_units(); --n) {
    TARN_CHECK(cluster_layer(s, s.n_units_done));
    ++s.n_units_done;
    ++n_units_spent_;
  }
  s.has_job = s.n_units_done < n_units();
  return {};
}

// Begun anew, it ends the same.
Result<void> Selector::cluster_layer(Session& s, u32 cache_layer) {
  const u32 n_kv_heads = args_.spec->n_kv_heads, n_subspaces = args_.config->n_subspaces;
  const u32 first_head = cache_layer * n_kv_heads;
  HeadIndex* heads = s.target + first_head;
  const u32 slot_begin = heads[0].pq.slot_begin(), slot_end = slot_begin + s.n_rows;
  const u32 n_sample = select::PqIndex::n_sample(heads[0].pq.shape(), s.n_rows);
  const u64 vector_bytes = args_.plan->group_shape.vector_bytes;
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  if (args_.kv_stream != nullptr) args_.kv_stream->drop_plan();

  TARN_CHECK(each_window(*s.sequence, cache_layer, slot_begin, slot_end, [&](const Window& w) {
    args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
      const u8** pages = scratch(worker_idx).pages;
      key_pages(*s.sequence, first_head + kv_head, w, pages);
      u8* out = reinterpret_cast<u8*>(sample_of(kv_head));
      u64 i = ceil_div(u64{w.slot_begin - slot_begin} * n_sample, s.n_rows);
      for (; i < n_sample; ++i) {
        const u32 slot =
            slot_begin + select::PqIndex::sample_row(static_cast<u32>(i), n_sample, s.n_rows);
        if (slot >= w.slot_end) break;
        const u8* key = pages[slot / page_tokens] + u64{slot % page_tokens} * 2 * vector_bytes;
        std::memcpy(out + i * vector_bytes, key, vector_bytes);
      }
    });
  }));
  args_.workers->run(n_kv_heads * n_subspaces, [&](u32 task_idx, u32 worker_idx) {
    const u32 kv_head = task_idx / n_subspaces;
    const u8* sample = reinterpret_cast<const u8*>(sample_of(kv_head));
    heads[kv_head].pq.train({.table = *args_.table,
                             .keys = {.type = args_.kv_type,
                                      .pages = &sample,
                                      .page_tokens = n_sample,
                                      .head_dim = args_.spec->head_dim,
                                      .stride_bytes = vector_bytes},
                             .first_slot = 0,
                             .subspace = task_idx % n_subspaces,
                             .iterations = args_.config->iterations,
                             .scratch = scratch(worker_idx).train});
  });
  TARN_CHECK(each_window(*s.sequence, cache_layer, slot_begin, slot_end, [&](const Window& w) {
    args_.workers->run(n_kv_heads * n_subspaces, [&](u32 task_idx, u32 worker_idx) {
      const u32 kv_head = task_idx / n_subspaces;
      const Scratch mine = scratch(worker_idx);
      heads[kv_head].pq.code({.table = *args_.table,
                              .keys = key_pages(*s.sequence, first_head + kv_head, w, mine.pages),
                              .subspace = task_idx % n_subspaces,
                              .slot_begin = w.slot_begin,
                              .slot_end = w.slot_end,
                              .scratch = mine.train});
    });
  }));
  args_.workers->run(n_kv_heads, [&](u32 kv_head, u32) { heads[kv_head].pq.end_codebook(); });
  return {};
}

Result<void> Selector::swap(Session& s) {
  if (s.has_job) {
    // Its own set, if it could not begin until now: nobody reads the old codes any more.
    if (s.target == nullptr && !can_work(s)) begin_training(s, s.heads);
    TARN_CHECK(run_units(s, n_units()));
  }
  if (s.target == spare_ && spare_user_ == &s) std::swap(s.heads, spare_);
  drop_job(s);
  return {};
}

Result<void> Selector::advance(Session& s, const kv::Sequence& sequence, u32 n_tokens) {
  for (;;) {
    switch (s.life.advance(n_tokens)) {
      case IndexEvent::none:
        return {};
      case IndexEvent::build:
        start_job(s, sequence, /*is_rebuild=*/false);
        break;
      case IndexEvent::rebuild:
        start_job(s, sequence, /*is_rebuild=*/true);
        break;
      case IndexEvent::swap:
        TARN_CHECK(swap(s));
        break;
    }
  }
}

void Selector::end_turn(u32 idx, const kv::Sequence& sequence, u32 n_tokens) {
  if (!is_on()) return;
  Session& s = session(idx);
  s.sequence = &sequence;
  s.turn_end = n_tokens;
  if (s.life.is_clustering()) return;  // its swap may be due: the next row waits, and can fail
  const Result<void> started = settle(s);
  TARN_ASSERT(started.has_value());
}

Result<void> Selector::settle(Session& s) {
  if (s.turn_end == 0) return {};
  s.n_tokens = s.turn_end;
  TARN_CHECK(advance(s, *s.sequence, s.turn_end));
  s.turn_end = 0;
  return {};
}

Result<bool> Selector::begin_row(u32 idx, const kv::Sequence& sequence, u32 n_tokens,
                                 bool may_work) {
  TARN_ASSERT(is_on());
  Session& s = session(idx);
  s.is_stuck = false;
  TARN_CHECK(settle(s));
  if (may_work && can_work(s)) {
    const u32 n_left = n_units() - s.n_units_done;
    const u32 n_steps = std::max(s.life.swap_at() - std::min(s.life.swap_at(), s.n_tokens), 1u);
    TARN_CHECK(run_units(s, static_cast<u32>(ceil_div(n_left, n_steps))));
  }
  s.n_tokens = n_tokens;
  TARN_CHECK(advance(s, sequence, n_tokens));
  return !s.life.is_dense();
}

void Selector::far_groups(u32 idx, u32* begin, u32* end) const {
  const select::Segments segments = session(idx).life.segments();
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  *begin = static_cast<u32>(ceil_div(segments.middle_begin, page_tokens));
  *end = std::max(*begin, segments.middle_end / page_tokens);
}

bool Selector::has_work() const {
  if (!is_on()) return false;
  for (u32 idx = 0; idx < args_.plan->sessions_max; ++idx) {
    if (can_work(session(idx))) return true;
  }
  return false;
}

void Selector::work() {
  for (u32 idx = 0; idx < args_.plan->sessions_max; ++idx) {
    Session& s = session(idx);
    if (!can_work(s)) continue;
    s.is_stuck = !run_units(s, 1).has_value();
    return;
  }
}

// ---- A step ---------------------------------------------------------------------------------

u32 Selector::choose(const Head& h, const select::KeyPages& keys, std::span<u32> slots,
                     u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const Session& s = session(h.session);
  const u32 head = h.cache_layer * spec.n_kv_heads + h.kv_head;
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim));
  return s.heads[head].choose(*args_.config,
                              {.table = *args_.table,
                               .query = {h.q, spec.n_heads / spec.n_kv_heads, scale},
                               .segments = s.life.segments(),
                               .k = s.life.k(),
                               .scratch = scratch(worker_idx).search,
                               .slots = slots},
                              keys, select::random_at(kRandomSeed, head));
}

// Chosen slots in ascending order, cut into tiles by rank: where they lie changes no bit.
void Selector::attend_chosen(const Head& h, const SlotSource& source, std::span<const u32> slots,
                             u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const Scratch mine = scratch(worker_idx);
  Spent& spent = of_workers_[worker_idx].spent;
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  const u32 n_slots = static_cast<u32>(slots.size());
  const u32 n_part = static_cast<u32>(ceil_div(plan::kGatherTokens, page_tokens)) * page_tokens;
  for (u32 begin = 0; begin < n_slots; begin += n_part) {
    const u32 n = std::min(n_part, n_slots - begin);
    const u64 part_ns = args_.clock->now_ns();
    const u8* const* pages =
        source.pages_of(begin, slots.subspan(begin, n), mine.gathered, mine.gathered_pages);
    const u64 gathered_ns = args_.clock->now_ns();
    args_.table->attn({.type = args_.kv_type,
                       .pages = pages,
                       .page_tokens = page_tokens,
                       .head_dim = spec.head_dim,
                       .q = h.q,
                       .q_stride = 0,
                       .out = h.out,
                       .out_stride = 0,
                       .n_rows = 1,
                       .n_group_heads = spec.n_heads / spec.n_kv_heads,
                       .visible = &n_slots,
                       .scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim)),
                       .scratch = h.attention,
                       .slot_begin = begin,
                       .slot_end = begin + n_part,
                       .state = mine.state});
    spent.gather_ns += gathered_ns - part_ns;
    spent.attend_ns += args_.clock->now_ns() - gathered_ns;
  }
  spent.kv_bytes += n_slots * u64{2} * args_.plan->group_shape.vector_bytes;
  spent.n_slots += n_slots;
}

void Selector::attend(const Head& h, u32 worker_idx) {
  const u64 start_ns = args_.clock->now_ns();
  const Scratch mine = scratch(worker_idx);
  const u32 head = h.cache_layer * args_.spec->n_kv_heads + h.kv_head;
  const Session& s = session(h.session);
  const select::KeyPages keys =
      key_pages(*h.sequence, head, {.group_end = h.sequence->n_groups()}, mine.pages);
  s.heads[head].take_in(*args_.config, *args_.table, keys, s.life.segments().middle_end,
                        mine.train);
  const u32 n_slots = choose(h, keys, mine.slots, worker_idx);
  of_workers_[worker_idx].spent.select_ns += args_.clock->now_ns() - start_ns;
  const ResidentSlots source(keys.pages, keys.page_tokens,
                             u64{2} * args_.plan->group_shape.vector_bytes);
  attend_chosen(h, source, mine.slots.first(n_slots), worker_idx);
}

// ---- A step over memory and disk --------------------------------------------------------------

Selector::Head Selector::head_of(const Layer& layer, u32 kv_head, u32 worker_idx) const {
  const u64 offset =
      u64{kv_head} * (args_.spec->n_heads / args_.spec->n_kv_heads) * args_.spec->head_dim;
  return {.session = layer.session,
          .sequence = layer.sequence,
          .cache_layer = layer.cache_layer,
          .kv_head = kv_head,
          .q = layer.q + offset,
          .out = layer.out + offset,
          .attention = layer.attention + worker_idx * layer.attention_stride_bytes};
}

Result<void> Selector::attend_fetched(const Layer& layer) {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  TARN_CHECK(take_in(layer));
  const std::span<u32> n_chosen = layer_table().n_chosen;
  args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
    const u64 start_ns = args_.clock->now_ns();
    const Head head = head_of(layer, kv_head, worker_idx);
    const select::KeyPages no_keys{};
    n_chosen[kv_head] = choose(head, no_keys, fetched(kv_head).slots, worker_idx);
    const u64 chosen_ns = args_.clock->now_ns();
    want(layer, kv_head, worker_idx);
    Spent& spent = of_workers_[worker_idx].spent;
    spent.select_ns += chosen_ns - start_ns;
    spent.gather_ns += args_.clock->now_ns() - chosen_ns;
  });
  TARN_CHECK(fetch(layer));
  args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
    const Fetched mine = fetched(kv_head);
    const FetchedSlots source(mine.pages, args_.plan->group_shape.page_tokens);
    attend_chosen(head_of(layer, kv_head, worker_idx), source, mine.slots.first(n_chosen[kv_head]),
                  worker_idx);
    keep(layer, kv_head);
  });
  return {};
}

// Of what was chosen the cache gives what it has; the rest is wanted of the mover.
void Selector::want(const Layer& layer, u32 kv_head, u32 worker_idx) {
  const LayerTable table = layer_table();
  const Fetched mine = fetched(kv_head);
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  u32 far_begin = 0, far_end = 0;
  far_groups(layer.session, &far_begin, &far_end);
  const std::span<const u32> slots = mine.slots.first(table.n_chosen[kv_head]);
  const auto rank_of = [&](u32 group) {
    const auto at = std::lower_bound(slots.begin(), slots.end(), u64{group} * page_tokens);
    return static_cast<u32>(at - slots.begin());
  };
  const u32 n_near = rank_of(far_begin), n_far = rank_of(far_end) - n_near;
  const u32 n_chosen = static_cast<u32>(slots.size());
  u32 n = 0;
  for (; n < n_near + n_far; ++n) mine.wanted[n] = {slots[n], n};
  u32 n_missing = n_far;
  const std::span<kv::SlotCache> of_session = caches(layer.session);
  if (!of_session.empty()) {
    const u32 head = layer.cache_layer * args_.spec->n_kv_heads + kv_head;
    n_missing = of_session[head].take(mine.wanted.subspan(n_near, n_far), mine.bytes);
  }
  u32 n_wanted = n_near + n_missing;
  for (; n < n_chosen; ++n) mine.wanted[n_wanted++] = {slots[n], n};
  table.n_near[kv_head] = n_near;
  table.n_far[kv_head] = n_missing;
  table.wanted[kv_head] = mine.wanted.first(n_wanted);
  table.out[kv_head] = mine.bytes;
  of_workers_[worker_idx].spent.n_far += n_far;
  of_workers_[worker_idx].spent.n_cached += n_far - n_missing;
}

void Selector::keep(const Layer& layer, u32 kv_head) {
  const std::span<kv::SlotCache> of_session = caches(layer.session);
  if (of_session.empty()) return;
  const LayerTable table = layer_table();
  const Fetched mine = fetched(kv_head);
  const u32 head = layer.cache_layer * args_.spec->n_kv_heads + kv_head;
  of_session[head].put(table.wanted[kv_head].subspan(table.n_near[kv_head], table.n_far[kv_head]),
                       mine.bytes);
}

// Keys that the middle has got since the last row: one, as a rule.
Result<void> Selector::take_in(const Layer& layer) {
  const Session& s = session(layer.session);
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 first_head = layer.cache_layer * n_kv_heads;
  const u32 middle_end = s.life.segments().middle_end;
  const u32 n_taken = s.heads[first_head].n_taken(*args_.config, middle_end);
  return each_window(*layer.sequence, layer.cache_layer, n_taken, middle_end, [&](const Window& w) {
    args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
      const Scratch mine = scratch(worker_idx);
      const u32 head = first_head + kv_head;
      s.heads[head].take_in(*args_.config, *args_.table,
                            key_pages(*layer.sequence, head, w, mine.pages), w.slot_end,
                            mine.train);
    });
  });
}

Result<void> Selector::fetch(const Layer& layer) {
  const LayerTable table = layer_table();
  kv::GatherArgs args{.sequence = layer.sequence,
                      .cache_layer = layer.cache_layer,
                      .wanted = table.wanted,
                      .out = table.out};
  far_groups(layer.session, &args.far_begin, &args.far_end);
  return args_.kv_stream->gather(args);
}

Selector::Spent Selector::take_spent() {
  Spent sum{.n_units = n_units_spent_};
  n_units_spent_ = 0;
  for (OfWorker& of_worker : of_workers_) {
    const Spent& spent = of_worker.spent;
    sum.select_ns += spent.select_ns;
    sum.gather_ns += spent.gather_ns;
    sum.attend_ns += spent.attend_ns;
    sum.kv_bytes += spent.kv_bytes;
    sum.n_slots += spent.n_slots;
    sum.n_far += spent.n_far;
    sum.n_cached += spent.n_cached;
    of_worker.spent = {};
  }
  return sum;
}

}  // namespace tarn::engine
