#include "runtime/kv/kept_chunks.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {

void KeptChunks::init(Carver& carver, const KeptShape& shape) {
  shape_ = shape;
  units_ = carver.take<Unit>("units", shape.n_units);
  groups_ = carver.rows<GroupRef>("groups", shape.n_units,
                                  u64{shape.n_cache_layers} * shape.chunk_groups);
  std::ranges::fill(units_, Unit{});
  std::ranges::fill(groups_, GroupRef{});
}

std::span<GroupRef> KeptChunks::groups(u32 piece) const {
  return groups_.subspan(u64{piece} * shape_.chunk_groups, shape_.chunk_groups);
}

KeptChunks::Unit* KeptChunks::find(u32 session, u32 chunk) const {
  const auto is_it = [&](const Unit& u) { return u.session == session && u.chunk == chunk; };
  const auto found = std::ranges::find_if(units_, is_it);
  return found == units_.end() ? nullptr : &*found;
}

// Only behind the session's others, so that what it keeps begins with its first slot.
KeptChunks::Unit* KeptChunks::take(u32 session, u32 chunk) {
  if (chunk > 0 && find(session, chunk - 1) == nullptr) return nullptr;
  const auto is_free = [&](const Unit& u) {
    const bool is_last = find(u.session, u.chunk + 1) == nullptr;
    return u.session == kNobody || (step_ - u.step > kIdleSteps && is_last);
  };
  const auto free = std::ranges::find_if(units_, is_free);
  if (free == units_.end()) return nullptr;
  *free = {session, chunk, step_};
  for (u32 layer = 0; layer < shape_.n_cache_layers; ++layer) {
    forget(idx_of(*free) * shape_.n_cache_layers + layer);
  }
  return &*free;
}

std::optional<u32> KeptChunks::piece(u32 session, u32 cache_layer, u32 chunk) {
  Unit* unit = find(session, chunk);
  if (unit == nullptr) unit = take(session, chunk);
  if (unit == nullptr) return std::nullopt;
  unit->step = step_;
  return idx_of(*unit) * shape_.n_cache_layers + cache_layer;
}

bool KeptChunks::is_full(u32 chunk, const Sequence& sequence) const {
  return (u64{chunk} + 1) * shape_.chunk_groups * shape_.page_tokens <= sequence.n_slots();
}

bool KeptChunks::has(u32 piece, const Sequence& sequence) const {
  const u32 layer = piece % shape_.n_cache_layers;
  const u32 chunk = units_[piece / shape_.n_cache_layers].chunk;
  const u32 first = chunk * shape_.chunk_groups;
  if (!is_full(chunk, sequence)) return false;
  const std::span<const GroupRef> kept = groups(piece);
  for (u32 i = 0; i < shape_.chunk_groups; ++i) {
    const GroupRef group = sequence.group(layer, first + i);
    if (group.idx != kept[i].idx || group.generation != kept[i].generation) return false;
  }
  return true;
}

void KeptChunks::put(u32 piece, const Sequence& sequence) {
  const u32 layer = piece % shape_.n_cache_layers;
  const u32 chunk = units_[piece / shape_.n_cache_layers].chunk;
  const u32 first = chunk * shape_.chunk_groups;
  TARN_ASSERT(is_full(chunk, sequence));
  const std::span<GroupRef> kept = groups(piece);
  for (u32 i = 0; i < shape_.chunk_groups; ++i) kept[i] = sequence.group(layer, first + i);
}

void KeptChunks::forget(u32 piece) { std::ranges::fill(groups(piece), GroupRef{}); }

u32 KeptChunks::n_kept_groups(u32 session, const Sequence& sequence) const {
  for (u32 chunk = 0;; ++chunk) {
    const Unit* unit = find(session, chunk);
    if (unit == nullptr) return chunk * shape_.chunk_groups;
    for (u32 layer = 0; layer < shape_.n_cache_layers; ++layer) {
      if (!has(idx_of(*unit) * shape_.n_cache_layers + layer, sequence)) {
        return chunk * shape_.chunk_groups;
      }
    }
  }
}

}  // namespace tarn::kv
