// runtime/store/store_ops.h
//
// The operations in flight: a fixed table of slots, each with its requests, what it holds of the
// index, and the event that it ends with.
#pragma once

#include "platform/base/bump.h"
#include "runtime/store/record_index.h"
#include "runtime/store/store_file.h"

namespace tarn::store {

inline constexpr u32 kRunsMax = 16;   // requests of one read
inline constexpr u32 kHeadRun = 255;  // of a read: the request for its head

enum class Stage : u8 {
  none,
  payload,  // put: written. read: everything is read
  written,  // put: waits for a sync
  syncing,
  head,       // put: written
  published,  // put: found; its head waits for a sync before the replaced one may be erased
  syncing_head,
  waiting,      // flush: for what began before it
  erase_waits,  // for readers of what is to be erased
  erasing,
  burial_waits,  // put: failed at its head, which may have landed all the same
  burying,
  ended,  // the event waits for poll()
  lent,   // the event was given out, I/O is still in flight
};

struct Run {
  u32 first_sector = 0, n_sectors = 0;
};

struct Slot {
  Op op = Op::none;
  Stage stage = Stage::none;
  Outcome outcome = Outcome::ok;
  bool head_wanted = false;       // read: still to be asked for
  bool head_is_known = false;     // read: lent with what it holds
  bool is_checked_later = false;  // read: its payload
  bool has_record = false;        // the index waits for this to be released
  bool failed = false;            // a request of this did not end well
  bool gives_back = false;        // put: an event `written` is wanted
  bool tell_written = false;      // and waits for poll()
  u32 n_io = 0;                   // in flight
  u32 n_runs = 0, next_run = 0;
  u32 landing_sector = 0;  // read: which one lies at the payload's begin
  u64 tag = 0;
  u64 sequence = 0;
  u64 deadline_ns = 0;
  u64 written_at_ns = 0;
  RecordRef ref{};
  RecordRef replaced{};  // held by a put until it is published
  RecordRef erased{};    // retired, and to be freed by this
  std::span<std::byte> payload{};
  std::span<std::byte> head{};  // ours or lent
  std::span<const u32> token_ids{};
  std::array<Run, kRunsMax> runs{};

  bool has_ended() const { return stage == Stage::ended || stage == Stage::lent; }
};

class StoreOps {
 public:
  StoreOps(StoreFile& file, RecordIndex& index, StoreStats& stats)
      : file_(file), index_(index), stats_(stats) {}
  static u64 bytes(const StoreLimits& limits);
  void init(const StoreLimits& limits, Bump& memory);

  Slot* free_slot();                        // nullptr: busy
  Slot& begin(Slot& slot, const Slot& op);  // in a free slot
  std::span<Slot> all() { return slots_; }
  std::span<const Slot> all() const { return slots_; }
  bool is_idle() const { return n_ops_ == 0; }
  // The slot's own memory for a record's head.
  std::span<std::byte> own_head(const Slot& slot) const;

  // False: the disk's queue is full.
  bool submit(Slot& slot, u32 run, const IoRequest& request);
  u64 tag_of(const Slot& slot) const { return slot_idx(slot) * kRunsOfTag; }
  Slot& slot_of(u64 tag);
  // Takes the completion. Nothing where it was of an operation that has ended.
  Slot* take(const IoCompletion& completion);
  u64 first_deadline_ns() const;

  void end(Slot& slot, Outcome outcome);
  void end_all(Outcome outcome);
  void clear();  // forgets all slots; nothing may be in flight
  u32 hand_out(std::span<Event> events);

  // Gives back a hold. The last one of a retired record frees it, if no operation erases it.
  void let_go(RecordRef ref);
  // The record, which the caller holds, is no longer found.
  void drop(RecordRef ref);

 private:
  u64 slot_idx(const Slot& slot) const { return static_cast<u64>(&slot - slots_.data()); }
  void release(Slot& slot);

  StoreFile& file_;
  RecordIndex& index_;
  StoreStats& stats_;
  std::span<Slot> slots_{};
  std::span<std::byte> heads_{};  // [ops_max][head_bytes_max]
  u64 head_bytes_max_ = 0;
  u32 n_ops_ = 0;
  u64 next_sequence_ = 1;
};

}  // namespace tarn::store
