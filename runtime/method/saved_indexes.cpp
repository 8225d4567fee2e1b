#include "runtime/method/saved_indexes.h"

#include "platform/base/assert.h"

namespace tarn::method {

// Of what a later start may ask for; zeros where there is none.
store::Key SavedIndexes::draw_key() const {
  if (memory_.extents() == nullptr || !args_.kv->tiers().outlives_us) return {};
  return memory_.extents()->draw_key();
}

// Where no manifest names them.
void SavedIndexes::erase(const IndexSession& s, const store::Key& owner) {
  if (memory_.extents() == nullptr || owner == store::Key{} || owner == s.named_key) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    memory_.extents()->erase_codebook(owner, head);
  }
}

// A layer's codes, and what its extents are found by, out of the memory of the session's caches.
// What finds no room there, or none on the disk, is made again.
void SavedIndexes::keep_layer(const IndexSession& s, u32 cache_layer) {
  kv::Extents* const extents = memory_.extents();
  if (extents == nullptr || s.owner() == store::Key{}) return;
  const std::span<std::byte> memory = memory_.borrow_caches(memory_.idx_of(s));
  std::span<std::byte> room = memory;
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head,
              extent = order_.extent_of(s, head);
    const PqIndex& pq = pq_of(s.target[head]);
    const u32 n_orders = extents->head(extent).n_orders;
    const KeyWindow slots = order_.extent_slots(s);
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
                           .extent_version = extents->head(extent).name.version},
                          pq, extents->firsts(extent).first(u64{n_orders} * shape.n_pairs), room);
    extents->put_codebook(s.owner(), head, room, n_bytes);
    room = room.subspan(n_padded);
  }
  extents->settle();
}

// Of an index that is made again: heads get what there is of them.
void SavedIndexes::find_layer(IndexSession& s, u32 cache_layer) {
  if (memory_.extents() == nullptr) return;
  const std::span<std::byte> memory = memory_.borrow_caches(memory_.idx_of(s));
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head;
    PqIndex& pq = pq_of(s.target[head]);
    const auto record = memory.first(memory_.extents()->read_codebook(s.owner(), head, memory));
    const auto saved = read_codebook_record(record, s.n_rows, pq);
    if (saved) order_.adopt(s, head, *saved, record);
  }
}

bool SavedIndexes::has_codes(const IndexSession& s, u32 cache_layer) const {
  if (memory_.extents() == nullptr) return false;
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  for (u32 head = cache_layer * n_kv_heads; head < (cache_layer + 1) * n_kv_heads; ++head) {
    if (pq_of(s.target[head]).n_clustered() == 0) return false;
  }
  return true;
}

void SavedIndexes::touch(const store::Key& owner) {
  if (memory_.extents() == nullptr || owner == store::Key{}) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    memory_.extents()->touch_codebook(owner, head);
  }
}

}  // namespace tarn::method
