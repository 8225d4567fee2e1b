// Moves of groups that a use of KV waits for or begins. The KV cache asks for them; whether there
// are any was decided when it was opened.
//
//   thread   the engine's
#pragma once

#include "platform/base/result.h"
#include "runtime/kv/sequence.h"
#include "runtime/step/batch.h"

namespace tarn::kv {

class GroupMoves {
 public:
  virtual bool exist() const = 0;
  // Makes room for a copy of the tail in all layers.
  virtual Result<void> make_room() = 0;
  // Makes room likewise, with one group of every layer pinned, until drop_hold(). `group` counts
  // within the sequence. On an error none is pinned.
  virtual Result<void> hold(const Sequence& sequence, u32 group) = 0;
  virtual void drop_hold() = 0;
  // Serve calls of the KV cache: reserve_frames(), plan_step() and so on.
  virtual Result<void> make_writable(const Sequence& sequence, u32 n) = 0;
  virtual void plan_step(const step::Batch& batch, const Sequence* next) = 0;
  virtual void plan_later(const Sequence& sequence) = 0;
  virtual u32 n_together(u32 n_runs) const = 0;
  virtual Result<u32> pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) = 0;
  virtual void unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) = 0;
  virtual void pump(u64 timeout_ns) = 0;
  virtual bool are_under_way() const = 0;
  // Begins none any more, and waits for those under way.
  virtual void stop() = 0;

 protected:
  ~GroupMoves() = default;
};

// Each group has its place for good: nothing waits or moves.
class NoMoves final : public GroupMoves {
 public:
  bool exist() const override { return false; }
  Result<void> make_room() override { return {}; }
  Result<void> hold(const Sequence&, u32) override { return {}; }
  void drop_hold() override {}
  Result<void> make_writable(const Sequence&, u32) override { return {}; }
  void plan_step(const step::Batch&, const Sequence*) override {}
  void plan_later(const Sequence&) override {}
  u32 n_together(u32 n_runs) const override { return n_runs; }
  Result<u32> pin(const Sequence&, u32, u32 begin, u32 end) override { return end - begin; }
  void unpin(const Sequence&, u32, u32, u32) override {}
  void pump(u64) override {}
  bool are_under_way() const override { return false; }
  void stop() override {}
};

}  // namespace tarn::kv
