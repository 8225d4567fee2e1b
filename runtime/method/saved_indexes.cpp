#include "runtime/method/saved_indexes.h"

#include "platform/base/assert.h"

namespace tarn::method {

// Draws a key for what a later start may ask for; zeros where there is none.
store::Key SavedIndexes::draw_key() const {
  if (memory_.extents() == nullptr || !args_.kv->tiers().outlives_us) return {};
  return memory_.extents()->draw_key();
}

// Erases the records where no manifest names them.
void SavedIndexes::erase(const IndexSession& s, const store::Key& owner) {
  if (memory_.extents() == nullptr || owner == store::Key{} || owner == s.named_key) return;
  for (u32 head = 0; head < args_.shape->n_heads; ++head) {
    memory_.extents()->erase_codebook(owner, head);
  }
}

// Keeps a layer's records, out of the memory of the session's caches. What finds no room there, or
// none on the disk, is made again.
void SavedIndexes::keep_layer(const IndexSession& s, u32 cache_layer) {
  kv::Extents* const extents = memory_.extents();
  if (extents == nullptr || s.owner() == store::Key{}) return;
  const std::span<std::byte> memory = memory_.borrow_caches(memory_.idx_of(s));
  std::span<std::byte> room = memory;
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head;
    const u64 reader_bytes = s.target[head]->saved_bytes();
    if (reader_bytes == 0) continue;
    const u64 n_bytes = reader_bytes + memory_.order().saved_bytes(s, head);
    const u64 n_padded = align_up(n_bytes, store::kSectorBytes);
    if (room.size() < n_padded) {
      extents->settle();
      room = memory;
    }
    if (room.size() < n_padded) return;
    s.target[head]->save(room);
    memory_.order().save(s, head, room);
    extents->put_codebook(s.owner(), head, room, n_bytes);
    room = room.subspan(n_padded);
  }
  extents->settle();
}

// Gives heads of an index that is made again what there is of them.
void SavedIndexes::find_layer(IndexSession& s, u32 cache_layer) {
  if (memory_.extents() == nullptr) return;
  const std::span<std::byte> memory = memory_.borrow_caches(memory_.idx_of(s));
  for (u32 kv_head = 0; kv_head < args_.spec->n_kv_heads; ++kv_head) {
    const u32 head = cache_layer * args_.spec->n_kv_heads + kv_head;
    const auto record = memory.first(memory_.extents()->read_codebook(s.owner(), head, memory));
    const bool is_there = s.target[head]->load(s.life.ranges().middle_begin, s.n_rows, record);
    if (is_there) memory_.order().adopt(s, head, record);
  }
}

bool SavedIndexes::has_layer(const IndexSession& s, u32 cache_layer) const {
  if (memory_.extents() == nullptr) return false;
  const u32 n_kv_heads = args_.spec->n_kv_heads;
  for (u32 head = cache_layer * n_kv_heads; head < (cache_layer + 1) * n_kv_heads; ++head) {
    if (s.target[head]->n_trained() == 0) return false;
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
