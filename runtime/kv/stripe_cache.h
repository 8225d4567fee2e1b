// Keeps stripes of KV in a discrete GPU's memory while the rest of a context passes through it. It
// keeps a session's first stripes, in all layers, as many as the plan has units for. A step attends
// to each layer from its first slot on, so a part that never changes is best (Belady 1966).
//
//   stripe    neighbouring groups of one layer, which a GPU copies together
//   unit      room for one stripe of every layer; a piece of it is one layer's
//   content   a piece notes the numbers and generations of the groups it was copied from, so a cut,
//             a fork, or another session makes the piece stale. It holds sealed groups alone
//   steps     a unit that no step asked for in kIdleSteps is free for another session; a session
//             loses its last unit first
//   thread    the engine's
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/sequence.h"

namespace tarn::kv {

struct StripeShape {
  u32 n_units = 0;
  u32 n_cache_layers = 0;
  u32 stripe_groups = 0;
  u32 page_tokens = 0;
};

class StripeCache {
 public:
  static constexpr u64 kIdleSteps = 64;
  void init(Carver& carver, const StripeShape& shape);

  void begin_step() { ++step_; }
  // Returns the piece of the session's stripe in a layer, or nothing if no unit is free. Stripes
  // are asked for in ascending order.
  std::optional<u32> piece(u32 session, u32 cache_layer, u32 stripe);
  // Returns whether all of the stripe's groups are sealed; only then it may be kept.
  bool is_full(u32 stripe, const Sequence& sequence) const;
  bool has(u32 piece, const Sequence& sequence) const;
  void put(u32 piece, const Sequence& sequence);
  void forget(u32 piece);  // before its memory is overwritten
  // Counts the groups, from the first on, that are kept in every layer.
  u32 n_kept_groups(u32 session, const Sequence& sequence) const;

 private:
  static constexpr u32 kNoSession = ~u32{0};
  struct Unit {
    u32 session = kNoSession;
    u32 stripe = 0;
    u64 step = 0;  // the last one that asked for it
  };
  Unit* find(u32 session, u32 stripe) const;
  Unit* take(u32 session, u32 stripe);
  std::span<GroupRef> groups(u32 piece) const;
  u32 idx_of(const Unit& unit) const { return static_cast<u32>(&unit - units_.data()); }

  StripeShape shape_{};
  std::span<Unit> units_{};
  std::span<GroupRef> groups_{};  // [n_units, n_cache_layers, stripe_groups]
  u64 step_ = kIdleSteps;
};

}  // namespace tarn::kv
