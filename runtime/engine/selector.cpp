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
  bool is_rebuild = false;
  bool has_job = false;  // triggered, and units are left
};

struct Selector::Scratch {
  std::span<std::byte> search, train;
  std::span<u32> slots;
  const u8** pages;
  u8* gathered;
  const u8** gathered_pages;
  f32* state;
};

void ResidentSlots::gather(std::span<const u32> slots, u8* out) const {
  constexpr u64 kAhead = 16;  // slots asked for before they are copied
  const auto slot = [&](u32 s) { return pages[s / page_tokens] + s % page_tokens * slot_bytes; };
  for (u64 i = 0; i < slots.size(); ++i, out += slot_bytes) {
    if (i + kAhead < slots.size()) {
      const u8* next = slot(slots[i + kAhead]);
      for (u64 at = 0; at < slot_bytes; at += 64) __builtin_prefetch(next + at);
    }
    std::memcpy(out, slot(slots[i]), slot_bytes);
  }
}

// ---- Memory ---------------------------------------------------------------------------------

void Selector::init(const SelectorArgs& args) {
  static_assert(sizeof(Session) <= plan::kSelectSessionBytes);
  static_assert(alignof(Session) <= kTakeAlignment);
  args_ = args;
  const plan::SelectShape& shape = args.plan->select;
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

// `head` counts (cache layer, KV head) pairs.
select::KeyPages Selector::key_pages(const kv::Sequence& sequence, u32 head,
                                     const u8** pages) const {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  sequence.pages(head / n_kv_heads, head % n_kv_heads, {pages, args_.plan->pages_max});
  return {.type = args_.kv_type,
          .pages = pages,
          .page_tokens = args_.plan->group_shape.page_tokens,
          .head_dim = args_.spec->head_dim};
}

// ---- Sessions -------------------------------------------------------------------------------

void Selector::forget(u32 idx) {
  if (!is_on()) return;
  Session& s = session(idx);
  drop_job(s);
  s.life.forget();
}

void Selector::truncate(u32 idx, u32 n_tokens) {
  if (!is_on()) return;
  Session& s = session(idx);
  const bool keeps = s.life.truncate(n_tokens);
  if (!s.life.is_clustering()) drop_job(s);
  if (!keeps || s.life.is_dense()) return;
  const u32 middle_end = s.life.segments().middle_end;
  for (u32 head = 0; head < args_.plan->select.n_heads; ++head) {
    s.heads[head].truncate(*args_.config, middle_end);
  }
}

void Selector::copy(u32 from, u32 to, const kv::Sequence& sequence) {
  if (!is_on()) return;
  const Session& source = session(from);
  Session& s = session(to);
  drop_job(s);
  s.life = source.life;
  s.sequence = &sequence;
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
  const bool is_pq = args_.config->method == SelectMethod::pq;
  return is_pq ? args_.plan->select.n_heads * args_.config->n_subspaces : 0;
}

void Selector::start_job(Session& s, const kv::Sequence& sequence, bool is_rebuild) {
  s.sequence = &sequence;
  s.is_rebuild = is_rebuild;
  s.n_rows = s.life.n_rows_clustering();
  s.has_job = n_units() > 0;
  s.target = nullptr;
  s.n_units_done = 0;
}

void Selector::drop_job(Session& s) {
  s.has_job = false;
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
  return s.has_job && (!s.is_rebuild || s.target != nullptr || spare_user_ == nullptr);
}

void Selector::run_units(Session& s, u32 n) {
  if (s.target == nullptr && !s.is_rebuild) begin_training(s, s.heads);
  if (s.target == nullptr) {
    TARN_ASSERT(spare_user_ == nullptr);
    spare_user_ = &s;
    begin_training(s, spare_);
  }
  const u32 n_subspaces = args_.config->n_subspaces;
  const u32 first = s.n_units_done;
  n = std::min(n, n_units() - first);
  args_.workers->run(n, [&](u32 task_idx, u32 worker_idx) {
    const u32 head = (first + task_idx) / n_subspaces;
    const Scratch mine = scratch(worker_idx);
    s.target[head].pq.train({.table = *args_.table,
                             .keys = key_pages(*s.sequence, head, mine.pages),
                             .subspace = (first + task_idx) % n_subspaces,
                             .iterations = args_.config->iterations,
                             .scratch = mine.train});
  });
  s.n_units_done += n;
  n_units_spent_ += n;
  if (s.n_units_done < n_units()) return;
  args_.workers->run(args_.plan->select.n_heads,
                     [&](u32 head, u32) { s.target[head].pq.end_codebook(); });
  s.has_job = false;
}

void Selector::swap(Session& s) {
  if (s.has_job) {
    // Its own set, if it could not begin until now: nobody reads the old codes any more.
    if (s.target == nullptr && !can_work(s)) begin_training(s, s.heads);
    run_units(s, n_units());
  }
  if (s.target == spare_ && spare_user_ == &s) std::swap(s.heads, spare_);
  drop_job(s);
}

bool Selector::begin_row(u32 idx, const kv::Sequence& sequence, u32 n_tokens) {
  TARN_ASSERT(is_on());
  Session& s = session(idx);
  s.n_tokens = n_tokens;
  for (;;) {
    switch (s.life.advance(n_tokens)) {
      case IndexEvent::none:
        return !s.life.is_dense();
      case IndexEvent::build:
        start_job(s, sequence, /*is_rebuild=*/false);
        break;
      case IndexEvent::rebuild:
        start_job(s, sequence, /*is_rebuild=*/true);
        break;
      case IndexEvent::swap:
        swap(s);
        break;
    }
  }
}

void Selector::work_for(u32 idx) {
  Session& s = session(idx);
  if (!can_work(s)) return;
  const u32 n_left = n_units() - s.n_units_done;
  const u32 n_steps = std::max(s.life.swap_at() - std::min(s.life.swap_at(), s.n_tokens), 1u);
  run_units(s, static_cast<u32>(ceil_div(n_left, n_steps)));
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
    return run_units(s, args_.workers->n_workers());
  }
}

// ---- A step ---------------------------------------------------------------------------------

void Selector::attend(const Head& h, u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const u64 start_ns = args_.clock->now_ns();
  Session& s = session(h.session);
  const select::Segments segments = s.life.segments();
  const u32 head = h.cache_layer * spec.n_kv_heads + h.kv_head;
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  const Scratch mine = scratch(worker_idx);
  const select::KeyPages keys = key_pages(*h.sequence, head, mine.pages);
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim));
  const u32 n_slots = s.heads[head].choose(*args_.config,
                                           {.table = *args_.table,
                                            .query = {h.q, n_group_heads, scale},
                                            .segments = segments,
                                            .k = s.life.k(),
                                            .scratch = mine.search,
                                            .slots = mine.slots},
                                           keys, select::random_at(kRandomSeed, head), mine.train);
  Spent& spent = of_workers_[worker_idx].spent;
  spent.select_ns += args_.clock->now_ns() - start_ns;

  // Chosen slots in ascending order, cut into tiles by rank: where they lie changes no bit.
  const u64 slot_bytes = u64{2} * args_.plan->group_shape.vector_bytes;
  const ResidentSlots source{keys.pages, keys.page_tokens, slot_bytes};
  const u32 n_part =
      static_cast<u32>(ceil_div(plan::kGatherTokens, keys.page_tokens)) * keys.page_tokens;
  for (u32 begin = 0; begin < n_slots; begin += n_part) {
    const u32 n = std::min(n_part, n_slots - begin);
    const u64 part_ns = args_.clock->now_ns();
    source.gather(mine.slots.subspan(begin, n), mine.gathered);
    const u64 gathered_ns = args_.clock->now_ns();
    args_.table->attn({.type = args_.kv_type,
                       .pages = mine.gathered_pages,
                       .page_tokens = keys.page_tokens,
                       .head_dim = spec.head_dim,
                       .q = h.q,
                       .q_stride = 0,
                       .out = h.out,
                       .out_stride = 0,
                       .n_rows = 1,
                       .n_group_heads = n_group_heads,
                       .visible = &n_slots,
                       .scale = scale,
                       .scratch = h.attention,
                       .slot_begin = begin,
                       .slot_end = begin + n_part,
                       .state = mine.state});
    spent.gather_ns += gathered_ns - part_ns;
    spent.attend_ns += args_.clock->now_ns() - gathered_ns;
  }
  spent.kv_bytes += n_slots * slot_bytes;
  spent.n_slots += n_slots;
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
    of_worker.spent = {};
  }
  return sum;
}

}  // namespace tarn::engine
