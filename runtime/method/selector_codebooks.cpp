// What a clustering has made, on disk for a later start: an index that is taken up with its extents
// takes the reading of its codes, where a clustering reads all KV several times.
#include <utility>

#include "platform/base/assert.h"
#include "runtime/method/selector_parts.h"

namespace tarn::method {

// Of what a later start may ask for; zeros where there is none.
store::Key Selector::draw_key() const {
  if (extents() == nullptr || !args_.kv->tiers().names.is_on()) return {};
  return extents()->draw_key();
}

// Where no manifest names them.
void Selector::erase_codebooks(const Session& s, const store::Key& owner) {
  if (extents() == nullptr || owner == store::Key{} || owner == s.named_key) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    extents()->codebooks().erase(owner, head);
  }
}

// A layer's codes, and what its extents are found by, out of the memory of the session's caches.
// What finds no room there, or none on the disk, is made again.
void Selector::keep_layer(const Session& s, u32 cache_layer) {
  kv::Extents* const extents = this->extents();
  if (extents == nullptr || s.owner() == store::Key{}) return;
  const std::span<std::byte> memory = borrow_caches(idx_of(s));
  std::span<std::byte> room = memory;
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head, extent = extent_of(s, head);
    const PqIndex& pq = pq_of(s.target[head]);
    const u32 n_orders = extents->n_orders(extent);
    const Window slots = extent_slots(s, pq, args_.shape->in.group.page_tokens);
    const u64 n_bytes = codebook_record_bytes(pq.shape(), s.n_rows, n_orders);
    const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
    if (room.size() < n_padded) {
      extents->settle();
      room = memory;
    }
    if (room.size() < n_padded) return;
    const kv::ExtentShape& shape = extents->shape();
    write_codebook_record({.n_rows = s.n_rows,
                           .n_pairs = shape.n_pairs,
                           .n_orders = n_orders,
                           .slot_begin = slots.slot_begin,
                           .slot_end = slots.slot_end,
                           .record_tokens = shape.record_tokens,
                           .slot_bytes = shape.slot_bytes,
                           .extent_version = extents->name(extent).version},
                          pq, extents->firsts(extent).first(u64{n_orders} * shape.n_pairs), room);
    extents->codebooks().put(s.owner(), head, room, n_bytes);
    room = room.subspan(n_padded);
  }
  extents->settle();
}

// Of an index that is made again: heads get what there is of them.
void Selector::find_layer(Session& s, u32 cache_layer) {
  if (extents() == nullptr) return;
  const std::span<std::byte> memory = borrow_caches(idx_of(s));
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head;
    PqIndex& pq = pq_of(s.target[head]);
    const auto record = memory.first(extents()->codebooks().read(s.owner(), head, memory));
    const auto saved = read_codebook_record(record, s.n_rows, pq);
    if (saved) adopt_extent(s, head, *saved, record);
  }
}

bool Selector::has_codes(const Session& s, u32 cache_layer) const {
  if (extents() == nullptr) return false;
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  for (u32 head = cache_layer * n_kv_heads; head < (cache_layer + 1) * n_kv_heads; ++head) {
    if (pq_of(s.target[head]).n_clustered() == 0) return false;
  }
  return true;
}

// Or there is nothing to lay out.
bool Selector::has_extents(const Session& s, u32 cache_layer) const {
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  for (u32 head = cache_layer * n_kv_heads; head < (cache_layer + 1) * n_kv_heads; ++head) {
    const Window slots = extent_slots(s, pq_of(s.target[head]), args_.shape->in.group.page_tokens);
    if (slots.slot_begin == slots.slot_end) return true;
    if (!extents()->is_of(extent_of(s, head), s.target[head])) return false;
  }
  return true;
}

// The extent that the record of a head says, whose codes are there.
void Selector::adopt_extent(const Session& s, u32 head, const CodebookHead& saved,
                            std::span<const std::byte> record) {
  const kv::ExtentShape& shape = extents()->shape();
  const PqIndex& pq = pq_of(s.target[head]);
  const Window slots = extent_slots(s, pq, args_.shape->in.group.page_tokens);
  const bool has_slots = saved.slot_begin == slots.slot_begin && saved.slot_end == slots.slot_end;
  const bool has_shape =
      saved.record_tokens == shape.record_tokens && saved.slot_bytes == shape.slot_bytes;
  if (!has_slots || !has_shape || saved.n_orders == 0) return;
  const u32 extent = extent_of(s, head), n_orders = std::min(saved.n_orders, shape.n_orders);
  Carver carver(scratch(0).search);
  const auto ranges = carver.take<u64>("", shape.n_pairs);
  for (u32 order = 0; order < n_orders; ++order) {
    const std::span<u32> firsts = extents()->firsts(extent, order);
    if (!read_places(record, order, pq, ranges, firsts)) return;
  }
  extents()->adopt(extent, slots.slot_begin, slots.slot_end, n_orders,
                   {.owner = s.owner(), .version = saved.extent_version, .head = head},
                   s.target[head]);
}

store::Key Selector::codebooks_key(u32 idx) const {
  return is_on() ? session(idx).used_key : store::Key{};
}

void Selector::note_named(u32 idx, const store::Key& key) {
  if (!is_on()) return;
  Session& s = session(idx);
  const store::Key before = std::exchange(s.named_key, key);
  if (!(before == codebooks_key(idx)) && !(before == s.job_key)) erase_codebooks(s, before);
}

void Selector::touch_codebooks(u32 idx) {
  const store::Key key = codebooks_key(idx);
  if (extents() == nullptr || key == store::Key{}) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    extents()->codebooks().touch(key, head);
  }
}

}  // namespace tarn::method
