// What a clustering has made, on disk for a later start: an index that is taken up with its extents
// takes the reading of its codes, where a clustering reads all KV several times.
#include <cstring>

#include "platform/base/assert.h"
#include "runtime/engine/selector_parts.h"
#include "runtime/engine/take.h"
#include "runtime/select/codebook_record.h"

namespace tarn::engine {

using select::PqIndex;

// Of what a later start may ask for; zeros where there is none.
store::Key Selector::draw_key() const {
  if (extents() == nullptr || !args_.kv_stream->keeps_sessions()) return {};
  return extents()->draw_key();
}

void Selector::erase_codebooks(const store::Key& owner) {
  if (extents() == nullptr || owner == store::Key{}) return;
  for (u32 head = 0; head < args_.plan->select.n_heads; ++head) {
    extents()->erase_codebook(owner, head);
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
    const PqIndex& pq = s.target[head].pq;
    const u32 n_orders = extents->n_orders(extent);
    const u64 n_bytes = select::codebook_record_bytes(pq.shape(), s.n_rows, n_orders);
    const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
    if (room.size() < n_padded) {
      extents->settle();
      room = memory;
    }
    if (room.size() < n_padded) return;
    const kv::ExtentShape& shape = extents->shape();
    select::write_codebook_record({.n_rows = s.n_rows,
                                   .n_pairs = shape.n_pairs,
                                   .n_orders = n_orders,
                                   .slot_begin = extents->slot_begin(extent),
                                   .slot_end = extents->slot_end(extent),
                                   .record_tokens = shape.record_tokens,
                                   .slot_bytes = shape.slot_bytes,
                                   .extent_version = extents->name(extent).version},
                                  pq, extents->firsts(extent).first(u64{n_orders} * shape.n_pairs),
                                  room);
    extents->put_codebook(s.owner(), head, room, n_bytes);
    room = room.subspan(n_padded);
  }
  extents->settle();
}

// Of an index that is made again.
Selector::Found Selector::find_layer(Session& s, u32 cache_layer) {
  if (extents() == nullptr || s.n_codebooks != 1) return Found::nothing;
  s.first_row = 0;
  s.n_rows = s.codebooks[0].n_rows;
  const std::span<std::byte> memory = borrow_caches(idx_of(s));
  bool are_adopted = true;
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head;
    PqIndex& pq = s.target[head].pq;
    pq.start(s.life.segments().middle_begin);
    const auto record = memory.first(extents()->read_codebook(s.owner(), head, memory));
    if (!select::read_codebook_record(record, s.n_rows, pq)) return Found::nothing;
    are_adopted = are_adopted && adopt_extent(s, head, record);
  }
  return are_adopted ? Found::codes_and_extents : Found::codes;
}

// The extent that the record of a head says, whose codes are there.
bool Selector::adopt_extent(const Session& s, u32 head, std::span<const std::byte> record) {
  const kv::ExtentShape& shape = extents()->shape();
  const PqIndex& pq = s.target[head].pq;
  const Window slots = extent_slots(s, pq, args_.plan->group_shape.page_tokens);
  select::CodebookHead saved;
  std::memcpy(&saved, record.data(), sizeof saved);
  if (saved.slot_begin != slots.slot_begin || saved.slot_end != slots.slot_end) return false;
  if (slots.slot_begin == slots.slot_end) return true;
  if (saved.record_tokens != shape.record_tokens || saved.slot_bytes != shape.slot_bytes) {
    return false;
  }
  const u32 extent = extent_of(s, head), n_orders = std::min(saved.n_orders, shape.n_orders);
  for (u32 order = 0; order < n_orders; ++order) {
    const bool holds =
        select::read_places(record, order, pq, pair_counters(head % args_.spec->n_kv_heads),
                            extents()->firsts(extent, order));
    if (!holds) return false;
  }
  return extents()->adopt(extent, slots.slot_begin, slots.slot_end, n_orders,
                          {.owner = s.owner(), .version = saved.extent_version, .head = head},
                          &s.target[head]);
}

}  // namespace tarn::engine
