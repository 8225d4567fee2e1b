// Which chunks of KV stay in a discrete GPU's memory while the rest of a context passes through it:
// the first ones of a session, of all its layers, as many as the plan has units for. A step attends
// to each layer from its first slot on, so a part that never changes is best (Belady 1966).
//
//   unit      room for one chunk of every layer; a piece of it is one layer's
//   content   told by the groups that a piece was copied from: their numbers and generations, so a
//             cut, a fork, or another session makes a piece stale by itself. Sealed groups alone
//   steps     a unit that no step has asked for in kIdleSteps goes to whom it is of use, the last
//             one of its session first
//   thread    the engine's
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/sequence.h"

namespace tarn::kv {

struct KeptShape {
  u32 n_units = 0;
  u32 n_cache_layers = 0;
  u32 chunk_groups = 0;
  u32 page_tokens = 0;
};

class KeptChunks {
 public:
  static constexpr u64 kIdleSteps = 64;
  void init(Carver& carver, const KeptShape& shape);

  void begin_step() { ++step_; }
  // Where the session's chunk of a layer is or may be; nothing where it has no unit. Chunks are
  // asked for in ascending order.
  std::optional<u32> piece(u32 session, u32 cache_layer, u32 chunk);
  // Whether all of the chunk's groups are sealed, which is when it may be kept.
  bool is_full(u32 chunk, const Sequence& sequence) const;
  bool has(u32 piece, const Sequence& sequence) const;
  void put(u32 piece, const Sequence& sequence);
  void forget(u32 piece);  // it is about to be written over
  // Groups from the first on that need not come from elsewhere, in any layer.
  u32 n_kept_groups(u32 session, const Sequence& sequence) const;

 private:
  static constexpr u32 kNobody = ~u32{0};
  struct Unit {
    u32 session = kNobody;
    u32 chunk = 0;
    u64 step = 0;  // that asked for it last
  };
  Unit* find(u32 session, u32 chunk) const;
  Unit* take(u32 session, u32 chunk);
  std::span<GroupRef> groups(u32 piece) const;
  u32 idx_of(const Unit& unit) const { return static_cast<u32>(&unit - units_.data()); }

  KeptShape shape_{};
  std::span<Unit> units_{};
  std::span<GroupRef> groups_{};  // [n_units, n_cache_layers, chunk_groups]
  u64 step_ = kIdleSteps;
};

}  // namespace tarn::kv
