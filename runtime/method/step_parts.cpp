#include "runtime/method/step_parts.h"

#include "platform/base/assert.h"

namespace tarn::method {

void StepParts::begin(std::span<step::Run> runs, u32 cache_layer, const f32* query) {
  step::Run& run = runs[0];
  if (wants_query(run)) memory_.order().note_query(run.session, cache_layer, query);
  if (!fetches(run) || run.state == step::RunState::failed) return;
  const Result<void> chosen = begin_layer({&run, cache_layer, query});
  if (!chosen) (void)whole_.goes_on(run, fail(chosen.error()));
}

bool StepParts::next(std::span<step::Run> runs, u32 cache_layer, u32 group_end,
                     step::KvPart& part) {
  step::Run& run = runs[0];
  if (!fetches(run)) return whole_.next(runs, cache_layer, group_end, part);
  if (run.state == step::RunState::failed) return false;
  return whole_.goes_on(run, next_heads(&part.head_begin, &part.head_end));
}

void StepParts::give_back(std::span<const step::Run> runs, u32 cache_layer,
                          const step::KvPart& part) {
  if (!fetches(runs[0])) whole_.give_back(runs, cache_layer, part);
}

u32 StepParts::choose_slots(const Head& h, const KeyPages& keys, std::span<u32> slots,
                            u32 worker_idx) {
  const model::ModelSpec& spec = *args_.spec;
  const IndexSession& s = memory_.session(h.run.session);
  const u32 head = h.cache_layer * spec.n_kv_heads + h.kv_head;
  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim));
  return s.next.heads[head]->choose({.table = *args_.table,
                                     .query = {h.q, spec.n_heads / spec.n_kv_heads, scale},
                                     .ranges = s.next.life.ranges(),
                                     .k = s.next.life.k(),
                                     .scratch = memory_.scratch(worker_idx).search,
                                     .slots = slots},
                                    keys);
}

void StepParts::note_attended(Spent& spent, u64 n_slots) const {
  spent.kv_bytes += n_slots * 2 * args_.shape->in.group.vector_bytes;
  spent.n_slots += n_slots;
}

step::ChosenSlots StepParts::choose(const Head& h, u32 worker_idx) {
  if (fetches(h.run)) return take_fetched(h, worker_idx);
  const u64 start_ns = args_.clock->now_ns();
  const WorkerScratch mine = memory_.scratch(worker_idx);
  const u32 head = h.cache_layer * args_.spec->n_kv_heads + h.kv_head;
  const IndexSession& s = memory_.session(h.run.session);
  const KeyPages keys = memory_.key_pages(*h.run.sequence, head,
                                          {.group_end = h.run.sequence->n_groups()}, mine.pages);
  s.next.heads[head]->take_in(*args_.table, keys, s.next.life.ranges().middle_end, mine.train);
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

StepParts::Head StepParts::head_of(const Layer& layer, u32 kv_head) const {
  const u64 offset =
      u64{kv_head} * (args_.spec->n_heads / args_.spec->n_kv_heads) * args_.spec->head_dim;
  return {.run = *layer.run,
          .cache_layer = layer.cache_layer,
          .kv_head = kv_head,
          .q = layer.q + offset};
}

// Heads go as many at a time as there are workers: the disk reads for some of them while others
// choose or attend.
Result<void> StepParts::begin_layer(const Layer& layer) {
  layer_ = layer;
  turn_ = {};
  memory_.begin_fetch();
  TARN_CHECK(take_in(layer));
  kv::Extents* const extents = memory_.extents();
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  if (extents != nullptr) extents->reads().begin(memory_.fetch().readings);
  for (u32 begin = 0; begin < n_kv_heads; begin += n_heads_at_once()) {
    const u32 end = std::min(begin + n_heads_at_once(), n_kv_heads);
    choose_of(layer, begin, end);
    if (extents != nullptr) extents->reads().add(end);
  }
  const Result<void> gathered = gather(layer);
  if (!gathered && extents != nullptr) extents->reads().end();
  return gathered;
}

u32 StepParts::n_heads_at_once() const {
  return memory_.extents() == nullptr ? args_.spec->n_kv_heads : args_.workers->n_workers();
}

// Heads that extents lost some of have a second turn when the groups have given that.
Result<bool> StepParts::next_heads(u32* begin, u32* end) {
  kv::Extents* const extents = memory_.extents();
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

// Chooses for KV heads [begin, end).
void StepParts::choose_of(const Layer& layer, u32 begin, u32 end) {
  args_.workers->run(end - begin, [&](u32 task_idx, u32 worker_idx) {
    const u32 kv_head = begin + task_idx;
    const u64 start_ns = args_.clock->now_ns();
    const KeyPages no_keys{};
    HeadFetch& mine = memory_.fetch().heads[kv_head];
    mine.n_chosen = choose_slots(head_of(layer, kv_head), no_keys, mine.slots, worker_idx);
    const u64 chosen_ns = args_.clock->now_ns();
    want(layer, kv_head, worker_idx);
    Spent& spent = of_workers_[worker_idx].spent;
    spent.select_ns += chosen_ns - start_ns;
    spent.gather_ns += args_.clock->now_ns() - chosen_ns;
  });
}

// Takes what has landed to its rank here, where all workers do it.
step::ChosenSlots StepParts::take_fetched(const Head& h, u32 worker_idx) {
  const HeadFetch& mine = memory_.fetch().heads[h.kv_head];
  const std::span<kv::SlotCache> of_session = memory_.caches(h.run.session);
  const u64 start_ns = args_.clock->now_ns();
  if (!turn_.is_second && memory_.extents() != nullptr)
    memory_.extents()->reads().deliver(h.kv_head);
  const bool has_lost = memory_.fetch().readings[h.kv_head].n_lost > 0;
  if (has_lost != turn_.is_second) return {};
  const u32 head = h.cache_layer * args_.spec->n_kv_heads + h.kv_head;
  if (!of_session.empty()) {
    of_session[head].copy(mine.cached, mine.bytes);
    of_session[head].put(mine.missing.first(mine.n_missing), mine.bytes);
  }
  Spent& spent = of_workers_[worker_idx].spent;
  spent.gather_ns += args_.clock->now_ns() - start_ns;
  const std::span<const u32> slots = mine.slots.first(mine.n_chosen);
  note_attended(spent, slots.size());
  return {.slots = slots, .pages = mine.pages.data(), .state = memory_.scratch(worker_idx).state};
}

// Splits what was chosen: the cache gives what it has; the rest is wanted of the extents, and of
// the mover.
void StepParts::want(const Layer& layer, u32 kv_head, u32 worker_idx) {
  const FetchMemory& table = memory_.fetch();
  HeadFetch& mine = table.heads[kv_head];
  const u32 page_tokens = args_.shape->in.group.page_tokens;
  u32 offloaded_begin = 0, offloaded_end = 0;
  offloaded_groups(layer.run->session, &offloaded_begin, &offloaded_end);
  const std::span<const u32> slots = mine.slots.first(mine.n_chosen);
  const auto rank_of = [&](u32 group) {
    const auto at = std::lower_bound(slots.begin(), slots.end(), u64{group} * page_tokens);
    return static_cast<u32>(at - slots.begin());
  };
  const u32 n_near = rank_of(offloaded_begin), n_far = rank_of(offloaded_end) - n_near;
  const u32 n_chosen = static_cast<u32>(slots.size());
  const u32 head = layer.cache_layer * args_.spec->n_kv_heads + kv_head;
  const DiskOrder::NameArgs names{layer.run->session, head, worker_idx, n_near};
  memory_.order().name_slots(names, slots.subspan(n_near, n_far), mine.missing);
  u32 n_missing = n_far;
  const std::span<kv::SlotCache> of_session = memory_.caches(layer.run->session);
  if (!of_session.empty()) {
    n_missing = of_session[head].take(mine.missing.first(n_far), mine.found.first(n_far));
  }
  mine.cached = mine.found.subspan(n_missing, n_far - n_missing);

  u32 n_wanted = n_near, n_places = 0;
  for (u32 i = 0; i < n_near; ++i) mine.wanted[i] = {slots[i], i};
  for (const kv::WantedSlot& missing : mine.missing.first(n_missing)) {
    const bool is_foreign = (missing.slot & kForeign) != 0;
    if (is_foreign) mine.wanted[n_wanted++] = {missing.slot & ~kForeign, missing.rank};
    if (!is_foreign) mine.places[n_places++] = {missing.slot, missing.rank};
  }
  memory_.order().choose_orders(names, slots, mine.places.first(n_places));
  for (u32 i = n_near + n_far; i < n_chosen; ++i) mine.wanted[n_wanted++] = {slots[i], i};
  mine.n_missing = n_missing;
  table.wanted[kv_head] = mine.wanted.first(n_wanted);
  table.out[kv_head] = mine.bytes;
  table.readings[kv_head] = {.head = memory_.extent_of(memory_.session(layer.run->session), head),
                             .wants = mine.places.first(n_places),
                             .out = mine.bytes};
  of_workers_[worker_idx].spent.n_far += n_far;
  of_workers_[worker_idx].spent.n_cached += n_far - n_missing;
}

// Keys that the middle has got since the last row: one, as a rule.
Result<void> StepParts::take_in(const Layer& layer) {
  const IndexSession& s = memory_.session(layer.run->session);
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  const u32 first_head = layer.cache_layer * n_kv_heads;
  const u32 middle_end = s.next.life.ranges().middle_end;
  const u32 n_taken = s.next.heads[first_head]->n_taken(middle_end);
  return memory_.each_window(
      *layer.run->sequence, layer.cache_layer, n_taken, middle_end, [&](const KeyWindow& w) {
        args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
          const WorkerScratch mine = memory_.scratch(worker_idx);
          const u32 head = first_head + kv_head;
          s.next.heads[head]->take_in(*args_.table,
                                      memory_.key_pages(*layer.run->sequence, head, w, mine.pages),
                                      w.slot_end, mine.train);
        });
      });
}

Result<void> StepParts::gather(const Layer& layer) {
  const FetchMemory& table = memory_.fetch();
  kv::GatherArgs args{.sequence = layer.run->sequence,
                      .cache_layer = layer.cache_layer,
                      .wanted = table.wanted,
                      .out = table.out};
  offloaded_groups(layer.run->session, &args.offloaded_begin, &args.offloaded_end);
  return args_.kv->tiers().mover.gather(args);
}

// Fetches what extents could not give to KV heads [begin, end) from the groups; returns how many
// slots.
Result<u32> StepParts::fetch_lost(const Layer& layer, u32 begin, u32 end) {
  const FetchMemory& table = memory_.fetch();
  u32 n_lost = 0;
  for (u32 kv_head = begin; kv_head < end; ++kv_head) n_lost += table.readings[kv_head].n_lost;
  if (n_lost == 0) return n_lost;
  std::ranges::fill(table.wanted, std::span<const kv::WantedSlot>());
  for (u32 kv_head = begin; kv_head < end; ++kv_head) {
    const HeadFetch& mine = table.heads[kv_head];
    u32 n = 0;
    for (const kv::ExtentWant& want : table.readings[kv_head].wants) {
      if (want.token_idx != kv::kExtentLost) continue;
      mine.wanted[n++] = {mine.slots[want.rank], want.rank};
    }
    std::ranges::sort(mine.wanted.first(n), {}, &kv::WantedSlot::slot);
    table.wanted[kv_head] = mine.wanted.first(n);
  }
  TARN_CHECK(gather(layer));
  return n_lost;
}

void StepParts::offloaded_groups(u32 idx, u32* begin, u32* end) const {
  const TokenRanges ranges = memory_.session(idx).next.life.ranges();
  const u32 page_tokens = args_.shape->in.group.page_tokens;
  *begin = static_cast<u32>(ceil_div(ranges.middle_begin, page_tokens));
  *end = std::max(*begin, ranges.middle_end / page_tokens);
}

u32 StepParts::n_read(u32 idx) const {
  const TokenRanges ranges = memory_.session(idx).next.life.ranges();
  const u32 n_chosen = std::min(memory_.session(idx).next.life.k(), ranges.n_middle());
  return ranges.n_sinks() + n_chosen + ranges.n_local();
}

step::DeviceRow StepParts::take_device_row(const step::Run& run) {
  IndexSession& s = memory_.session(run.session);
  TARN_ASSERT(!s.life.is_dense());
  const TokenRanges ranges = s.life.ranges();
  const step::DeviceRow row{ranges, s.life.k(), s.n_coded, s.n_counted};
  s.n_coded = s.n_counted = ranges.n_middle();
  const u32 n_chosen = std::min(ranges.n_middle(), row.k);
  of_workers_[0].spent.n_slots +=
      u64{ranges.n_sinks() + n_chosen + ranges.n_local()} * args_.shape->n_heads;
  return row;
}

StepParts::Spent StepParts::take_spent() {
  Spent sum{};
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
