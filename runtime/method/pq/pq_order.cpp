#include "runtime/method/pq/pq_order.h"

#include <cstring>
#include <new>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/method/pq/pair_order.h"
#include "runtime/method/pq/pq_reader.h"

namespace tarn::method {
namespace {

u16 pair_at(const PqIndex& pq, u32 slot) {
  return static_cast<u16>(pair_of(pq, slot - pq.slot_begin()));
}

}  // namespace

DiskOrder* PqOrder::make(std::byte* at, IndexMemory* memory) {
  static_assert(sizeof(PqOrder) <= kDiskOrderBytes);
  return new (at) PqOrder(memory);
}

// Counts the bytes in which the orders of a head's extent are chosen, where each slot is wanted of
// another pair.
u64 PqOrder::scratch_bytes(u64 n_slots) {
  constexpr u64 kAlignment = 64;
  return align_up(n_slots * sizeof(WantedPair), kAlignment) +
         align_up((n_slots + 1) * sizeof(u32), kAlignment) +
         align_up(n_slots * sizeof(u32), kAlignment) +
         align_up(n_slots * sizeof(kv::ExtentWant), kAlignment);
}

// Forgets the session's extents. Extents that a manifest names stay on the disk.
void PqOrder::forget(const IndexSession& s) {
  if (memory_.extents() == nullptr) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    const u32 extent = extent_of(s, head);
    const bool is_named = !(s.named_key == store::Key{}) &&
                          memory_.extents()->head(extent).index == s.heads[head] &&
                          memory_.extents()->head(extent).name.owner == s.named_key;
    if (is_named) {
      memory_.extents()->leave(extent);
    } else {
      memory_.extents()->forget(extent);
    }
  }
}

void PqOrder::truncate(const IndexSession& s, u32 n_tokens) {
  if (memory_.extents() == nullptr) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    memory_.extents()->truncate(extent_of(s, head), n_tokens);
  }
}

OrderMemory PqOrder::own_memory() const {
  const kv::ExtentShape& shape = args_.caches_shape.extents;
  Carver carver(memory_.extents_memory().subspan(shape.bytes()));
  return OrderMemory::carve(carver, *args_.spec, args_.shape->in.sessions_max, shape.n_pairs);
}

std::span<u32> PqOrder::pair_counters(u32 kv_head) const {
  return Carver::row(own_memory().counters, args_.spec->n_kv_heads, kv_head);
}

f32* PqOrder::last_query(u32 session, u32 cache_layer) const {
  const u64 n_layers = args_.spec->n_cache_layers, n_rows = args_.shape->in.sessions_max * n_layers;
  return Carver::row(own_memory().queries, n_rows, session * n_layers + cache_layer).data();
}

void PqOrder::note_query(u32 session, u32 cache_layer, const f32* q) {
  if (memory_.extents() == nullptr) return;
  const u64 row = u64{args_.spec->n_heads} * args_.spec->head_dim;
  std::copy_n(q, row, last_query(session, cache_layer));
}

KeyWindow PqOrder::extent_slots(const IndexSession& s) const {
  const u32 page_tokens = args_.shape->in.group.page_tokens;
  const u32 slot_begin = s.life.ranges().middle_begin;
  const u32 group_begin = static_cast<u32>(ceil_div(slot_begin, page_tokens));
  const u32 group_end = std::max(group_begin, (slot_begin + s.n_rows) / page_tokens);
  return {.group_begin = group_begin,
          .group_end = group_end,
          .slot_begin = group_begin * page_tokens,
          .slot_end = group_end * page_tokens};
}

// Lays out a layer's part of the middle that lies in whole groups, read once for each part of it
// that finds room in the memory of the session's caches.
Result<void> PqOrder::lay_out(IndexSession& s, u32 cache_layer) {
  kv::Extents* const extents = memory_.extents();
  if (extents == nullptr) return {};
  const kv::ExtentShape& shape = extents->shape();
  const u32 n_kv_heads = args_.spec->n_kv_heads, first_head = cache_layer * n_kv_heads;
  const KeyWindow slots = extent_slots(s);
  const u32 session = memory_.idx_of(s);
  const u64 version = extents->draw_key().low;
  for (u32 kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
    const u32 head = first_head + kv_head;
    extents->begin(extent_of(s, head), slots.slot_begin, slots.slot_end,
                   {.owner = s.owner(), .version = version, .head = head});
    memory_.caches(session)[head].clear();  // it may have names of what was there
  }
  if (slots.slot_begin == slots.slot_end) return {};
  // Whole records of all heads.
  const std::span<std::byte> memory = memory_.borrow_caches(session);
  const u64 n_records = memory.size() / n_kv_heads / shape.record_bytes();
  TARN_ASSERT(n_records > 0);
  const u32 n_tokens = slots.slot_end - slots.slot_begin;
  const u32 part_tokens =
      static_cast<u32>(std::min<u64>(n_records * shape.record_tokens, n_tokens));
  for (u32 order = 0; order < shape.n_orders; ++order) {
    place_pairs(s, cache_layer, slots, order);
    for (u32 begin = 0; begin < n_tokens; begin += part_tokens) {
      TARN_CHECK(
          write_part(s, {.cache_layer = cache_layer,
                         .slots = slots,
                         .order = order,
                         .place_begin = begin,
                         .place_end = std::min(begin + part_tokens, n_tokens),
                         .memory = memory.first(n_kv_heads * n_records * shape.record_bytes())}));
    }
  }
  for (u32 kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
    extents->finish(extent_of(s, first_head + kv_head), s.target[first_head + kv_head]);
  }
  return {};
}

void PqOrder::place_pairs(const IndexSession& s, u32 cache_layer, const KeyWindow& slots,
                          u32 order) {
  const model::ModelSpec& spec = *args_.spec;
  const u32 session = memory_.idx_of(s);
  const f32* q = last_query(session, cache_layer);
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  args_.workers->run(spec.n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
    const u32 head = cache_layer * spec.n_kv_heads + kv_head;
    const PqIndex& pq = pq_of(s.target[head]);
    const std::span<u32> firsts = memory_.extents()->firsts(extent_of(s, head), order);
    std::ranges::fill(firsts, 0u);
    for (u32 slot = slots.slot_begin; slot < slots.slot_end; ++slot) ++firsts[pair_at(pq, slot)];
    method::place_pairs(
        {.table = *args_.table,
         .index = pq,
         .query = {q + u64{kv_head} * n_group_heads * spec.head_dim, n_group_heads, 1.0f},
         .lut = reinterpret_cast<f32*>(memory_.scratch(worker_idx).search.data()),
         .order = order,
         .counts = firsts,
         .places = firsts});
  });
}

// Writes the tokens of one part, of all heads.
Result<void> PqOrder::write_part(const IndexSession& s, const Layout& layout) {
  kv::Extents* const extents = memory_.extents();
  const kv::ExtentShape& shape = extents->shape();
  const u32 n_kv_heads = args_.spec->n_kv_heads, first_head = layout.cache_layer * n_kv_heads;
  const u64 head_bytes = layout.memory.size() / n_kv_heads;
  for (u32 kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
    const std::span<u32> firsts = extents->firsts(extent_of(s, first_head + kv_head), layout.order);
    std::copy(firsts.begin(), firsts.end(), pair_counters(kv_head).begin());
  }
  TARN_CHECK(memory_.each_window(
      *s.sequence, layout.cache_layer, layout.slots.slot_begin, layout.slots.slot_end,
      [&](const KeyWindow& w) {
        args_.workers->run(n_kv_heads, [&](u32 kv_head, u32 worker_idx) {
          const KeyPages keys = memory_.key_pages(*s.sequence, first_head + kv_head, w,
                                                  memory_.scratch(worker_idx).pages);
          const PqIndex& pq = pq_of(s.target[first_head + kv_head]);
          const std::span<u32> next = pair_counters(kv_head);
          std::byte* const out = layout.memory.data() + kv_head * head_bytes;
          for (u32 slot = w.slot_begin; slot < w.slot_end; ++slot) {
            const u32 place = next[pair_at(pq, slot)]++;
            if (place < layout.place_begin || place >= layout.place_end) continue;
            const u32 in_part = place - layout.place_begin;
            std::memcpy(out + in_part / shape.record_tokens * shape.record_bytes() +
                            u64{in_part % shape.record_tokens} * shape.slot_bytes,
                        keys.pages[slot / keys.page_tokens] +
                            u64{slot % keys.page_tokens} * shape.slot_bytes,
                        shape.slot_bytes);
          }
        });
      }));
  for (u32 kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
    std::byte* record = layout.memory.data() + kv_head * head_bytes;
    for (u32 at = layout.place_begin; at < layout.place_end; at += shape.record_tokens) {
      extents->put(extent_of(s, first_head + kv_head), layout.order * shape.order_tokens() + at,
                   {record, shape.record_bytes()},
                   std::min(shape.record_tokens, layout.place_end - at));
      record += shape.record_bytes();
    }
  }
  extents->settle();
  return {};
}

bool PqOrder::has_extents(const IndexSession& s, u32 cache_layer) const {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  for (u32 head = cache_layer * n_kv_heads; head < (cache_layer + 1) * n_kv_heads; ++head) {
    const KeyWindow slots = extent_slots(s);
    if (slots.slot_begin == slots.slot_end) return true;
    if (memory_.extents()->head(extent_of(s, head)).index != s.target[head]) return false;
  }
  return true;
}

u64 PqOrder::saved_bytes(const IndexSession& s, u32 head) const {
  if (memory_.extents() == nullptr) return 0;
  const u32 n_orders = memory_.extents()->head(extent_of(s, head)).n_orders;
  return u64{n_orders} * args_.shape->n_pairs * sizeof(u32);
}

void PqOrder::save(const IndexSession& s, u32 head, std::span<std::byte> record) {
  const kv::Extents* const extents = memory_.extents();
  if (extents == nullptr) return;
  const u32 extent = extent_of(s, head), n_orders = extents->head(extent).n_orders;
  const kv::ExtentShape& shape = extents->shape();
  const KeyWindow slots = extent_slots(s);
  write_record_orders({.n_rows = s.n_rows,
                       .n_pairs = shape.n_pairs,
                       .n_orders = n_orders,
                       .slot_begin = slots.slot_begin,
                       .slot_end = slots.slot_end,
                       .record_tokens = shape.record_tokens,
                       .slot_bytes = shape.slot_bytes,
                       .extent_version = extents->head(extent).name.version},
                      pq_of(s.target[head]).shape(),
                      extents->firsts(extent).first(u64{n_orders} * shape.n_pairs), record);
}

void PqOrder::adopt(const IndexSession& s, u32 head, std::span<const std::byte> record) {
  const kv::ExtentShape& shape = memory_.extents()->shape();
  const PqIndex& pq = pq_of(s.target[head]);
  const CodebookHead saved = codebook_head(record);
  const KeyWindow slots = extent_slots(s);
  const bool has_slots = saved.slot_begin == slots.slot_begin && saved.slot_end == slots.slot_end;
  const bool has_shape =
      saved.record_tokens == shape.record_tokens && saved.slot_bytes == shape.slot_bytes;
  if (!has_slots || !has_shape || saved.n_orders == 0) return;
  const u32 extent = extent_of(s, head), n_orders = std::min(saved.n_orders, shape.n_orders);
  Carver carver(memory_.scratch(0).search);
  const auto ranges = carver.take<u64>("", shape.n_pairs);
  for (u32 order = 0; order < n_orders; ++order) {
    const std::span<u32> firsts = memory_.extents()->firsts(extent, order);
    if (!read_places(record, order, pq, ranges, firsts)) return;
  }
  memory_.extents()->adopt(extent, slots.slot_begin, slots.slot_end, n_orders,
                           {.owner = s.owner(), .version = saved.extent_version, .head = head},
                           s.target[head]);
}

// Names of the far slots of a head, which were chosen in ascending order: a slot's place in order 0
// of the head's extent, or, behind these, kForeign and the slot. Names ascend. What a step chooses
// of a pair are its first tokens (kernels/pq/pq_pairs.h: of equals the lower slots), so counting
// finds the places.
void PqOrder::name_slots(const NameArgs& args, std::span<const u32> chosen,
                         std::span<kv::WantedSlot> named) {
  const IndexSession& s = memory_.session(args.session);
  const kv::Extents* const extents = memory_.extents();
  const u32 extent = extent_of(s, args.head);
  const bool has_extent =
      extents != nullptr && extents->head(extent).index == s.next.heads[args.head];
  const u32 n = static_cast<u32>(chosen.size());
  if (!has_extent) {
    for (u32 i = 0; i < n; ++i) named[i] = {kForeign | chosen[i], args.first_rank + i};
    return;
  }
  const PqIndex& pq = pq_of(s.next.heads[args.head]);
  const std::span<const u32> firsts = extents->firsts(extent, 0);
  Carver carver(memory_.scratch(args.worker_idx).search);
  const std::span<u32> begins = carver.take<u32>("", firsts.size()),
                       ends = carver.take<u32>("", firsts.size());
  const std::span<u16> pairs = carver.take<u16>("", n), of_slot = carver.take<u16>("", n);
  const auto is_in = [&](u32 slot) {
    const kv::ExtentHead& of = extents->head(extent);
    return slot >= of.slot_begin && slot < of.slot_end;
  };
  // Counts how many of each pair, and which pairs, in the extent's order.
  std::ranges::fill(ends, 0u);
  u32 n_pairs = 0;
  for (u32 i = 0; i < n; ++i) {
    if (!is_in(chosen[i])) continue;
    of_slot[i] = pair_at(pq, chosen[i]);
    if (ends[of_slot[i]]++ == 0) pairs[n_pairs++] = of_slot[i];
  }
  std::ranges::sort(pairs.first(n_pairs), {}, [&](u16 pair) { return firsts[pair]; });
  u32 n_in = 0;
  for (const u16 pair : pairs.first(n_pairs)) {
    begins[pair] = n_in;
    n_in += ends[pair];
    ends[pair] = begins[pair];
  }
  for (u32 i = 0, n_foreign = 0; i < n; ++i) {
    const u32 rank = args.first_rank + i;
    if (!is_in(chosen[i])) {
      named[n_in + n_foreign++] = {kForeign | chosen[i], rank};
      continue;
    }
    const u16 pair = of_slot[i];
    const u32 at = ends[pair]++;
    named[at] = {firsts[pair] + at - begins[pair], rank};
  }
}

// Moves tokens in order 0, ascending, to order 1 where they are cheaper to read there.
void PqOrder::choose_orders(const NameArgs& args, std::span<const u32> chosen,
                            std::span<kv::ExtentWant> places) {
  const IndexSession& s = memory_.session(args.session);
  const kv::Extents* const extents = memory_.extents();
  const u32 extent = extent_of(s, args.head);
  if (places.empty() || extents->head(extent).n_orders < 2) return;
  const kv::ExtentShape& shape = extents->shape();
  const PqIndex& pq = pq_of(s.next.heads[args.head]);
  const std::span<const u32> firsts[2] = {extents->firsts(extent, 0), extents->firsts(extent, 1)};
  const u64 n = places.size();
  Carver carver(memory_.scratch(args.worker_idx).search);
  const auto pairs = carver.take<WantedPair>("", n);
  const auto begins = carver.take<u32>("", n + 1), by = carver.take<u32>("", n);
  const auto ordered = carver.take<kv::ExtentWant>("", n);
  const auto place_in_1 = [&](u32 place, u16 pair) {
    return shape.order_tokens() + firsts[1][pair] + (place - firsts[0][pair]);
  };
  const u32 last_byte = shape.slot_bytes - 1;
  u32 n_pairs = 0;
  for (u32 i = 0; i < n; ++i) {
    const u32 place = places[i].token_idx;
    const u16 pair = pair_at(pq, chosen[places[i].rank]);
    const u32 in_1 = place_in_1(place, pair);
    if (n_pairs == 0 || pairs[n_pairs - 1].pair != pair) {
      begins[n_pairs] = i;
      pairs[n_pairs++] = {.begin = {shape.sector_of(place, 0), shape.sector_of(in_1, 0)},
                          .pair = pair};
    }
    pairs[n_pairs - 1].end = {shape.sector_of(place, last_byte) + 1,
                              shape.sector_of(in_1, last_byte) + 1};
  }
  begins[n_pairs] = static_cast<u32>(n);
  method::choose_orders(pairs.first(n_pairs), by);
  u32 n_ordered = 0, n_in_1 = 0;
  for (u32 i = 0; i < n_pairs; ++i) {
    if (pairs[i].order == 1) by[n_in_1++] = i;
    if (pairs[i].order == 1) continue;
    for (u32 at = begins[i]; at < begins[i + 1]; ++at) ordered[n_ordered++] = places[at];
  }
  std::ranges::sort(by.first(n_in_1), {}, [&](u32 i) { return firsts[1][pairs[i].pair]; });
  for (const u32 i : by.first(n_in_1)) {
    for (u32 at = begins[i]; at < begins[i + 1]; ++at) {
      ordered[n_ordered++] = {place_in_1(places[at].token_idx, pairs[i].pair), places[at].rank};
    }
  }
  std::ranges::copy(ordered, places.begin());
}

// Cuts the cache of a head. A cut behind the extent leaves the tokens' indexes as they are.
void PqOrder::truncate_cache(const IndexSession& s, u32 head, u32 n_tokens, kv::SlotCache& cache) {
  const kv::Extents* const extents = memory_.extents();
  const u32 extent = extent_of(s, head);
  const bool has_extent = extents != nullptr && extents->head(extent).index == s.heads[head];
  const bool keeps =
      extents == nullptr || (has_extent && n_tokens >= extents->head(extent).slot_end);
  cache.truncate(keeps ? kForeign | n_tokens : 0);
}

}  // namespace tarn::method
