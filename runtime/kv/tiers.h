// The parts of KV over frames of memory and a store.
#pragma once

#include "runtime/kv/extents.h"
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

struct Tiers {
  TierStore store{};
  Residency residency{};
  Mover mover{};
  Extents extents{};
  StoreGuest* guest = nullptr;
  u64 nonce = 0;             // of this opening
  bool outlives_us = false;  // records of pages may be asked for after it
  static void on_event(void* self, const store::Event& event);
};

}  // namespace tarn::kv
