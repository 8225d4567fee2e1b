// A step: what each head chooses; where KV lies over memory and disk, what it takes to have the
// chosen slots in memory.
#include "platform/base/assert.h"
#include "runtime/method/selector_parts.h"

namespace tarn::method {
// ---- A step ---------------------------------------------------------------------------------

u32 Selector::choose_slots(const Head& h, const KeyPages& keys, std::span<u32> slots,
                           u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const Session& s = session(h.session);
  const u32 head = h.cache_layer * spec.n_kv_heads + h.kv_head;
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim));
  return s.next.heads[head]->choose({.table = *args_.table,
                                     .query = {h.q, spec.n_heads / spec.n_kv_heads, scale},
                                     .segments = s.next.life.segments(),
                                     .k = s.next.life.k(),
                                     .scratch = scratch(worker_idx).search,
                                     .slots = slots},
                                    keys);
}

void Selector::note_attended(Spent& spent, u64 n_slots) const {
  spent.kv_bytes += n_slots * 2 * args_.shape->in.group.vector_bytes;
  spent.n_slots += n_slots;
}

step::ChosenSlots Selector::choose(const Head& h, u32 worker_idx) {
  if (args_.kv->has_tiers()) return take_fetched(h, worker_idx);
  const u64 start_ns = args_.clock->now_ns();
  const Scratch mine = scratch(worker_idx);
  const u32 head = h.cache_layer * args_.spec->n_kv_heads + h.kv_head;
  const Session& s = session(h.session);
  const KeyPages keys =
      key_pages(*h.sequence, head, {.group_end = h.sequence->n_groups()}, mine.pages);
  s.next.heads[head]->take_in(*args_.table, keys, s.next.life.segments().middle_end, mine.train);
  const u32 n_slots = choose_slots(h, keys, mine.slots, worker_idx);
  Spent& spent = of_workers_[worker_idx].spent;
  spent.select_ns += args_.clock->now_ns() - start_ns;
  note_attended(spent, n_slots);
  return {.slots = mine.slots.first(n_slots),
          .groups = keys.pages,
          .tile = mine.gathered,
          .tile_pages = mine.gathered_pages,
          .state = mine.state};
}

// ---- A step over memory and disk --------------------------------------------------------------

Selector::Head Selector::head_of(const Layer& layer, u32 kv_head) const {
  const u64 offset =
      u64{kv_head} * (args_.spec->n_heads / args_.spec->n_kv_heads) * args_.spec->head_dim;
  return {.session = layer.session,
          .sequence = layer.sequence,
          .cache_layer = layer.cache_layer,
          .kv_head = kv_head,
          .q = layer.q + offset};
}

// Heads go as many at a time as there are workers: the disk reads for some of them while others
// choose or attend.
Result<void> Selector::begin_layer(const Layer& layer) {
  layer_ = layer;
  turn_ = {};
  TARN_CHECK(take_in(layer));
  kv::Extents* const extents = this->extents();
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  if (extents != nullptr) extents->reads().begin(layer_table().readings);
  for (u32 begin = 0; begin < n_kv_heads; begin += n_heads_at_once()) {
    const u32 end = std::min(begin + n_heads_at_once(), n_kv_heads);
    choose_of(layer, begin, end);
    if (extents != nullptr) extents->reads().add(end);
  }
  const Result<void> gathered = gather(layer);
  if (!gathered && extents != nullptr) extents->reads().end();
  return gathered;
}

u32 Selector::n_heads_at_once() const {
  return extents() == nullptr ? args_.spec->n_kv_heads : args_.workers->n_workers();
}

// Heads that extents lost some of have a second turn when the groups have given that.
Result<bool> Selector::next_heads(u32* begin, u32* end) {
  kv::Extents* const extents = this->extents();
  if (extents != nullptr && turn_.head_end > 0 && !turn_.is_second) {
    extents->reads().release(turn_.head_end);
    const Result<u32> n_lost = fetch_lost(layer_, turn_.head_begin, turn_.head_end);
    if (!n_lost) {
      extents->reads().end();
      return fail(n_lost.error());
    }
    turn_.is_second = *n_lost > 0;
    if (turn_.is_second) return true;
  }
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  if (turn_.head_end == n_kv_heads) {
    if (extents != nullptr) extents->reads().end();
    return false;
  }
  turn_ = {.head_begin = turn_.head_end,
           .head_end = std::min(turn_.head_end + n_heads_at_once(), n_kv_heads)};
  if (extents != nullptr) extents->reads().finish(turn_.head_end);
  *begin = turn_.head_begin, *end = turn_.head_end;
  return true;
}

// Of KV heads [begin, end).
void Selector::choose_of(const Layer& layer, u32 begin, u32 end) {
  args_.workers->run(end - begin, [&](u32 task_idx, u32 worker_idx) {
    const u32 kv_head = begin + task_idx;
    const u64 start_ns = args_.clock->now_ns();
    const KeyPages no_keys{};
    layer_table().n_chosen[kv_head] =
        choose_slots(head_of(layer, kv_head), no_keys, fetched(kv_head).slots, worker_idx);
    const u64 chosen_ns = args_.clock->now_ns();
    want(layer, kv_head, worker_idx);
    Spent& spent = of_workers_[worker_idx].spent;
    spent.select_ns += chosen_ns - start_ns;
    spent.gather_ns += args_.clock->now_ns() - chosen_ns;
  });
}

// What has landed is put into its place here, where all workers do it.
step::ChosenSlots Selector::take_fetched(const Head& h, u32 worker_idx) {
  const Fetched mine = fetched(h.kv_head);
  const std::span<kv::SlotCache> of_session = caches(h.session);
  const u64 start_ns = args_.clock->now_ns();
  if (!turn_.is_second && extents() != nullptr) extents()->reads().place(h.kv_head);
  const bool has_lost = layer_table().readings[h.kv_head].n_lost > 0;
  if (has_lost != turn_.is_second) return {};
  const u32 head = h.cache_layer * args_.spec->n_kv_heads + h.kv_head;
  if (!of_session.empty()) {
    of_session[head].copy(layer_table().found[h.kv_head], mine.bytes);
    const u32 n_missing = layer_table().n_missing[h.kv_head];
    of_session[head].put(mine.missing.first(n_missing), mine.bytes);
  }
  Spent& spent = of_workers_[worker_idx].spent;
  spent.gather_ns += args_.clock->now_ns() - start_ns;
  const std::span<const u32> slots = mine.slots.first(layer_table().n_chosen[h.kv_head]);
  note_attended(spent, slots.size());
  return {.slots = slots, .pages = mine.pages, .state = scratch(worker_idx).state};
}

// Of what was chosen the cache gives what it has; the rest is wanted of the extents, and of the
// mover.
void Selector::want(const Layer& layer, u32 kv_head, u32 worker_idx) {
  const LayerTable table = layer_table();
  const Fetched mine = fetched(kv_head);
  const u32 page_tokens = args_.shape->in.group.page_tokens;
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

// Keys that the middle has got since the last row: one, as a rule.
Result<void> Selector::take_in(const Layer& layer) {
  const Session& s = session(layer.session);
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 first_head = layer.cache_layer * n_kv_heads;
  const u32 middle_end = s.next.life.segments().middle_end;
  const u32 n_taken = s.next.heads[first_head]->n_taken(middle_end);
  return each_window(*layer.sequence, layer.cache_layer, n_taken, middle_end, [&](const Window& w) {
    args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
      const Scratch mine = scratch(worker_idx);
      const u32 head = first_head + kv_head;
      s.next.heads[head]->take_in(*args_.table, key_pages(*layer.sequence, head, w, mine.pages),
                                  w.slot_end, mine.train);
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
  return args_.kv->gather(args);
}

Selector::Spent Selector::take_spent() {
  Spent sum{.n_units = n_units_spent_};
  n_units_spent_ = 0;
  for (OfWorker& of_worker : of_workers_) {
    const Spent& spent = of_worker.spent;
    sum.select_ns += spent.select_ns;
    sum.gather_ns += spent.gather_ns;
    sum.kv_bytes += spent.kv_bytes;
    sum.n_slots += spent.n_slots;
    sum.n_far += spent.n_far;
    sum.n_cached += spent.n_cached;
    of_worker.spent = {};
  }
  return sum;
}

}  // namespace tarn::method
