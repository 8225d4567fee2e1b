// The parts of KV over frames of memory and a store.
#pragma once

#include "runtime/kv/extents.h"
#include "runtime/kv/group_moves.h"
#include "runtime/kv/mover.h"
#include "runtime/kv/residency.h"
#include "runtime/kv/tier_store.h"

namespace tarn::kv {

class StoreGuest {
 public:
  virtual void take(const store::Event& event) = 0;
  virtual void go_on() = 0;  // without waiting
  virtual bool is_busy() const = 0;

 protected:
  ~StoreGuest() = default;
};

struct Tiers final : GroupMoves {
  TierStore store{};
  Residency residency{};
  Mover mover{};
  Extents extents{};
  StoreGuest* guest = nullptr;
  u32 n_cache_layers = 0;
  u64 nonce = 0;             // of this opening
  bool outlives_us = false;  // records of pages may be asked for after it
  static void on_event(void* self, const store::Event& event);

  bool exist() const override { return true; }
  Result<void> make_room() override { return mover.make_room(n_cache_layers); }
  Result<void> hold(const Sequence& sequence, u32 group) override;
  void drop_hold() override { mover.drop_hold(); }
  Result<void> make_writable(const Sequence& sequence, u32 n) override {
    return mover.make_writable(sequence, n);
  }
  void plan_step(const step::Batch& batch, const Sequence* next) override;
  void plan_later(const Sequence& sequence) override;
  u32 n_together(u32) const override { return 1; }
  Result<u32> pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) override {
    return mover.pin(sequence, cache_layer, begin, end);
  }
  void unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) override {
    mover.unpin(sequence, cache_layer, begin, end);
  }
  void pump(u64 timeout_ns) override;
  bool are_under_way() const override;
  void stop() override;
};

}  // namespace tarn::kv
