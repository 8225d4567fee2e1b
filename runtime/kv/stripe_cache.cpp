#include "runtime/kv/stripe_cache.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {

void StripeCache::init(Carver& carver, const StripeShape& shape) {
  shape_ = shape;
  units_ = carver.take<Unit>("units", shape.n_units);
  groups_ = carver.rows<GroupRef>("groups", shape.n_units,
                                  u64{shape.n_cache_layers} * shape.stripe_groups);
  std::ranges::fill(units_, Unit{});
  std::ranges::fill(groups_, GroupRef{});
}

std::span<GroupRef> StripeCache::groups(u32 piece) const {
  return groups_.subspan(u64{piece} * shape_.stripe_groups, shape_.stripe_groups);
}

StripeCache::Unit* StripeCache::find(u32 session, u32 stripe) const {
  const auto is_it = [&](const Unit& u) { return u.session == session && u.stripe == stripe; };
  const auto found = std::ranges::find_if(units_, is_it);
  return found == units_.end() ? nullptr : &*found;
}

// Gives a unit only behind the session's others, so that a session's kept stripes begin with its
// first slot.
StripeCache::Unit* StripeCache::take(u32 session, u32 stripe) {
  if (stripe > 0 && find(session, stripe - 1) == nullptr) return nullptr;
  const auto is_free = [&](const Unit& u) {
    const bool is_last = find(u.session, u.stripe + 1) == nullptr;
    return u.session == kNoSession || (step_ - u.step > kIdleSteps && is_last);
  };
  const auto free = std::ranges::find_if(units_, is_free);
  if (free == units_.end()) return nullptr;
  *free = {session, stripe, step_};
  for (u32 layer = 0; layer < shape_.n_cache_layers; ++layer) {
    forget(idx_of(*free) * shape_.n_cache_layers + layer);
  }
  return &*free;
}

std::optional<u32> StripeCache::piece(u32 session, u32 cache_layer, u32 stripe) {
  Unit* unit = find(session, stripe);
  if (unit == nullptr) unit = take(session, stripe);
  if (unit == nullptr) return std::nullopt;
  unit->step = step_;
  return idx_of(*unit) * shape_.n_cache_layers + cache_layer;
}

bool StripeCache::is_full(u32 stripe, const Sequence& sequence) const {
  return (u64{stripe} + 1) * shape_.stripe_groups * shape_.page_tokens <= sequence.n_slots();
}

bool StripeCache::has(u32 piece, const Sequence& sequence) const {
  const u32 layer = piece % shape_.n_cache_layers;
  const u32 stripe = units_[piece / shape_.n_cache_layers].stripe;
  const u32 first = stripe * shape_.stripe_groups;
  if (!is_full(stripe, sequence)) return false;
  const std::span<const GroupRef> kept = groups(piece);
  for (u32 i = 0; i < shape_.stripe_groups; ++i) {
    const GroupRef group = sequence.group(layer, first + i);
    if (group.idx != kept[i].idx || group.generation != kept[i].generation) return false;
  }
  return true;
}

void StripeCache::put(u32 piece, const Sequence& sequence) {
  const u32 layer = piece % shape_.n_cache_layers;
  const u32 stripe = units_[piece / shape_.n_cache_layers].stripe;
  const u32 first = stripe * shape_.stripe_groups;
  TARN_ASSERT(is_full(stripe, sequence));
  const std::span<GroupRef> kept = groups(piece);
  for (u32 i = 0; i < shape_.stripe_groups; ++i) kept[i] = sequence.group(layer, first + i);
}

void StripeCache::forget(u32 piece) { std::ranges::fill(groups(piece), GroupRef{}); }

u32 StripeCache::n_kept_groups(u32 session, const Sequence& sequence) const {
  for (u32 stripe = 0;; ++stripe) {
    const Unit* unit = find(session, stripe);
    if (unit == nullptr) return stripe * shape_.stripe_groups;
    for (u32 layer = 0; layer < shape_.n_cache_layers; ++layer) {
      if (!has(idx_of(*unit) * shape_.n_cache_layers + layer, sequence)) {
        return stripe * shape_.stripe_groups;
      }
    }
  }
}

}  // namespace tarn::kv
