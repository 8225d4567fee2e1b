// Puts, erasures and flushes, their shared sync, and the write budget. store.h has the contract.
//
// A put: payload -> written -> syncing -> head -> (published -> syncing_head -> erase_waits ->
// erasing, if it replaces a record) -> ended. An erasure: erase_waits -> erasing -> ended. A flush:
// waiting -> syncing -> ended.
#pragma once

#include "runtime/store/store_parts.h"
#include "runtime/store/write_budget.h"

namespace tarn::store {

enum class When : u8 { poll_begins, poll_ends };

class StoreWriter {
 public:
  explicit StoreWriter(StoreParts& parts) : parts_(parts) {}
  // Starts with the next record's generation and the level of the write budget.
  void start(u64 next_generation, u64 budget_left_bytes);
  void stop() { budget_ = {}; }
  u64 budget_left_bytes() const { return budget_.left_bytes(); }

  Begun put(const PutArgs& args);
  Begun erase(RecordRef ref, u64 tag);
  Begun flush(u64 tag);

  void go_on(Slot& slot);
  void go_on_sync(When when);
  void take(Slot& slot);  // all requests of its stage have ended, or one has failed
  void take_sync(i64 result);
  u64 sync_deadline_ns() const { return is_syncing_ ? sync_deadline_ns_ : kNeverNs; }
  // Whether a sync that begins now can serve the flush.
  bool flush_is_due(const Slot& slot) const;

 private:
  void go_on_put(Slot& slot);
  void end_put_stage(Slot& slot);
  bool payload_still_holds(const Slot& slot) const;
  void publish(Slot& slot);
  bool sync_is_due(When when) const;
  bool submit_grave(Slot& slot, u32 frame_idx);

  StoreParts& parts_;
  WriteBudget budget_{};
  u64 next_generation_ = 1;
  bool is_syncing_ = false;
  u64 sync_deadline_ns_ = 0;
};

}  // namespace tarn::store
