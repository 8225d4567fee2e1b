// A store whose calls wait for their ends, and the buffers of the groups that they move. On the
// thread of the store's owner.
#pragma once

#include <array>
#include <span>

#include "runtime/store/store.h"

namespace tarn::reuse {

inline constexpr u32 kCopyBuffersMax = 8;
// Tags of a BlockingStore, used in turn: far more than the operations that run at a time.
inline constexpr u64 kOpsTags = 32768;

// Why a put, an erasure or a flush did not begin, and what helps.
Error why_not_begun(const store::Store& store, store::Begun begun);

class BlockingStore {
 public:
  struct Slot {         // a buffer for a group
    bool busy = false;  // the store's
    bool lent = false;  // of an operation that has ended, and the disk still has it
    store::Outcome outcome = store::Outcome::ok;
    u64 tag = 0;
  };

  void init(store::Store* store, std::span<std::byte> groups, u64 first_tag,
            void (*on_pump)(void* context), void* context);
  // An event with one of the kOpsTags tags from first_tag on.
  void take(const store::Event& event);
  // Whether the disk has no buffer left of an operation that it never ended.
  bool is_idle() const { return n_open_ == 0; }
  bool has_failed() const { return failed_; }  // since begin_groups() or forgive()
  void forgive() { failed_ = false; }

  // As many buffers of this size as there is room for, kCopyBuffersMax at most.
  Result<void> begin_groups(u64 group_bytes);
  u32 n_slots() const { return n_slots_; }
  Slot& slot(u64 group) { return slots_[group % n_slots_]; }
  std::span<std::byte> buffer(const Slot& slot) const;

  u64 next_tag() const { return first_tag_ + next_tag_; }
  // fn(tag), until the store has a place for one more operation.
  template <class Begin>
  store::Begun begin(Begin&& fn) {
    for (;;) {
      const store::Begun begun = fn(next_tag());
      if (begun == store::Begun::begun) ++n_open_, next_tag_ = (next_tag_ + 1) % kOpsTags;
      if (begun != store::Begun::busy) return begun;
      pump();
    }
  }
  void pump() { pump_(context_); }
  void wait_for(const Slot& slot);
  void wait_for_all();
  // Waits for it. False where it cannot be read.
  bool read(store::RecordRef ref, std::span<std::byte> payload);
  Result<void> flush();
  // Returns false where the record is held, or gone.
  bool erase(store::RecordRef ref);

  // Until end_holding(), new records are held as they are published; returns how many there were.
  void begin_holding();
  u64 end_holding();

 private:
  store::Store* store_ = nullptr;
  std::span<std::byte> groups_{};
  u64 first_tag_ = 0;
  void (*pump_)(void* context) = nullptr;
  void* context_ = nullptr;

  std::array<Slot, kCopyBuffersMax> slots_{};
  u32 n_slots_ = 0;
  u64 group_bytes_ = 0;
  u64 next_tag_ = 0;             // of kOpsTags, the next operation's
  u64 n_open_ = 0, n_lent_ = 0;  // without their last event; of them those that lack a buffer alone
  bool failed_ = false;          // one of them
  bool holds_ = false;
  u64 n_held_ = 0;
};

}  // namespace tarn::reuse
