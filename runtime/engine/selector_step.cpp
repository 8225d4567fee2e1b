// A step: what each head chooses, and attention to it; where KV lies over memory and disk, what it
// takes to have the chosen slots in memory.
#include <cstring>

#include "platform/base/assert.h"
#include "runtime/engine/selector_parts.h"
#include "runtime/select/random_at.h"

namespace tarn::engine {
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
                              keys, select::random_at(select::kRandomSeed, head));
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
  note_attended(spent, n_slots);
}

void Selector::note_attended(Spent& spent, u64 n_slots) const {
  spent.kv_bytes += n_slots * 2 * args_.plan->group_shape.vector_bytes;
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
          .out = layer.out == nullptr ? nullptr : layer.out + offset,
          .attention = layer.attention + worker_idx * layer.attention_stride_bytes};
}

// Heads go as many at a time as there are workers: the disk reads for some of them while others
// choose or attend.
Result<void> Selector::attend_fetched(const Layer& layer) {
  TARN_ASSERT(layer.out != nullptr);
  return take_layer(layer);
}

Result<Selector::LayerKv> Selector::fetch(const Layer& layer) {
  Layer asked = layer;
  asked.out = nullptr;
  TARN_CHECK(take_layer(asked));
  const LayerTable table = layer_table();
  return LayerKv{table.n_chosen, table.out};
}

Result<void> Selector::take_layer(const Layer& layer) {
  TARN_CHECK(take_in(layer));
  kv::Extents* const extents = this->extents();
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 n_at_once = extents == nullptr ? n_kv_heads : args_.workers->n_workers();
  if (extents != nullptr) extents->reads().begin(layer_table().readings);
  for (u32 begin = 0; begin < n_kv_heads; begin += n_at_once) {
    const u32 end = std::min(begin + n_at_once, n_kv_heads);
    choose_of(layer, begin, end);
    if (extents != nullptr) extents->reads().add(end);
  }
  Result<void> fetched = gather(layer);
  for (u32 begin = 0; fetched && begin < n_kv_heads; begin += n_at_once) {
    const u32 end = std::min(begin + n_at_once, n_kv_heads);
    if (extents != nullptr) extents->reads().finish(end);
    attend_of(layer, begin, end, Turn::first);
    if (extents == nullptr) continue;
    extents->reads().release(end);
    fetched = fetch_lost(layer, begin, end);
    if (fetched) attend_of(layer, begin, end, Turn::second);
  }
  if (extents != nullptr) extents->reads().end();
  return fetched;
}

// Of KV heads [begin, end).
void Selector::choose_of(const Layer& layer, u32 begin, u32 end) {
  args_.workers->run(end - begin, [&](u32 task_idx, u32 worker_idx) {
    const u32 kv_head = begin + task_idx;
    const u64 start_ns = args_.clock->now_ns();
    const select::KeyPages no_keys{};
    layer_table().n_chosen[kv_head] =
        choose(head_of(layer, kv_head, worker_idx), no_keys, fetched(kv_head).slots, worker_idx);
    const u64 chosen_ns = args_.clock->now_ns();
    want(layer, kv_head, worker_idx);
    Spent& spent = of_workers_[worker_idx].spent;
    spent.select_ns += chosen_ns - start_ns;
    spent.gather_ns += args_.clock->now_ns() - chosen_ns;
  });
}

// What has landed is put into its place here, where all workers do it. A head that lost some of it
// has its second turn when the groups have given that.
void Selector::attend_of(const Layer& layer, u32 begin, u32 end, Turn turn) {
  args_.workers->run(end - begin, [&](u32 task_idx, u32 worker_idx) {
    const u32 kv_head = begin + task_idx;
    const Fetched mine = fetched(kv_head);
    const std::span<kv::SlotCache> of_session = caches(layer.session);
    const u64 start_ns = args_.clock->now_ns();
    if (turn == Turn::first && extents() != nullptr) extents()->reads().place(kv_head);
    const bool has_lost = layer_table().readings[kv_head].n_lost > 0;
    if (has_lost != (turn == Turn::second)) return;
    if (!of_session.empty()) {
      const u32 head = layer.cache_layer * args_.spec->n_kv_heads + kv_head;
      of_session[head].copy(layer_table().found[kv_head], mine.bytes);
    }
    of_workers_[worker_idx].spent.gather_ns += args_.clock->now_ns() - start_ns;
    const std::span<const u32> slots = mine.slots.first(layer_table().n_chosen[kv_head]);
    if (layer.out != nullptr) {
      const FetchedSlots source(mine.pages, args_.plan->group_shape.page_tokens);
      attend_chosen(head_of(layer, kv_head, worker_idx), source, slots, worker_idx);
    } else {
      note_attended(of_workers_[worker_idx].spent, slots.size());
    }
    keep(layer, kv_head);
  });
}

// Of what was chosen the cache gives what it has; the rest is wanted of the extents, and of the
// mover.
void Selector::want(const Layer& layer, u32 kv_head, u32 worker_idx) {
  const LayerTable table = layer_table();
  const Fetched mine = fetched(kv_head);
  const u32 page_tokens = args_.plan->group_shape.page_tokens;
  u32 offloaded_begin = 0, offloaded_end = 0;
  offloaded_groups(layer.session, &offloaded_begin, &offloaded_end);
  const std::span<const u32> slots = mine.slots.first(table.n_chosen[kv_head]);
  const auto rank_of = [&](u32 group) {
    const auto at = std::lower_bound(slots.begin(), slots.end(), u64{group} * page_tokens);
    return static_cast<u32>(at - slots.begin());
  };
  const u32 n_near = rank_of(offloaded_begin), n_far = rank_of(offloaded_end) - n_near;
  const u32 n_chosen = static_cast<u32>(slots.size());
  const u32 head = layer.cache_layer * args_.spec->n_kv_heads + kv_head;
  const NameArgs names{layer.session, head, worker_idx, n_near};
  name_slots(names, slots.subspan(n_near, n_far), mine.missing);
  u32 n_missing = n_far;
  const std::span<kv::SlotCache> of_session = caches(layer.session);
  if (!of_session.empty()) {
    n_missing = of_session[head].take(mine.missing.first(n_far), mine.found.first(n_far));
  }
  table.found[kv_head] = mine.found.subspan(n_missing, n_far - n_missing);

  u32 n_wanted = n_near, n_places = 0;
  for (u32 i = 0; i < n_near; ++i) mine.wanted[i] = {slots[i], i};
  for (const kv::WantedSlot& missing : mine.missing.first(n_missing)) {
    const bool is_foreign = (missing.slot & kForeign) != 0;
    if (is_foreign) mine.wanted[n_wanted++] = {missing.slot & ~kForeign, missing.place};
    if (!is_foreign) mine.places[n_places++] = {missing.slot, missing.place};
  }
  choose_orders(names, slots, mine.places.first(n_places));
  for (u32 i = n_near + n_far; i < n_chosen; ++i) mine.wanted[n_wanted++] = {slots[i], i};
  table.n_missing[kv_head] = n_missing;
  table.wanted[kv_head] = mine.wanted.first(n_wanted);
  table.out[kv_head] = mine.bytes;
  table.readings[kv_head] = {.head = extent_of(session(layer.session), head),
                             .wants = mine.places.first(n_places),
                             .out = mine.bytes};
  of_workers_[worker_idx].spent.n_far += n_far;
  of_workers_[worker_idx].spent.n_cached += n_far - n_missing;
}

void Selector::keep(const Layer& layer, u32 kv_head) {
  const std::span<kv::SlotCache> of_session = caches(layer.session);
  if (of_session.empty()) return;
  const u32 n_missing = layer_table().n_missing[kv_head];
  const Fetched mine = fetched(kv_head);
  const u32 head = layer.cache_layer * args_.spec->n_kv_heads + kv_head;
  of_session[head].put(mine.missing.first(n_missing), mine.bytes);
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

Result<void> Selector::gather(const Layer& layer) {
  const LayerTable table = layer_table();
  kv::GatherArgs args{.sequence = layer.sequence,
                      .cache_layer = layer.cache_layer,
                      .wanted = table.wanted,
                      .out = table.out};
  offloaded_groups(layer.session, &args.offloaded_begin, &args.offloaded_end);
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
