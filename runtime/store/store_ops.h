// The operations in flight: a fixed table of slots, each with its requests, its holds in the index,
// and its final event.
#pragma once

#include "runtime/store/record_index.h"
#include "runtime/store/store_file.h"

namespace tarn::store {

inline constexpr u32 kRunsMax = 16;   // requests of one read
inline constexpr u32 kHeadRun = 255;  // a read's request for the head

enum class Stage : u8 {
  none,
  payload,  // put: is written. read: all is read
  written,  // put: waits for a sync
  syncing,
  head,       // put: written
  published,  // put: is found; its head waits for a sync before the replaced record may be erased
  syncing_head,
  waiting,      // flush: for operations that began before it
  erase_waits,  // for readers of the record to erase
  erasing,
  burial_waits,  // put: its head's write failed, but may have reached the disk
  burying,
  ended,  // the event waits for poll()
  lent,   // the event was returned, I/O is still in flight
};

struct Run {
  u32 first_sector = 0, n_sectors = 0;
};

struct Slot {
  Op op = Op::none;
  Stage stage = Stage::none;
  Outcome outcome = Outcome::ok;
  bool head_wanted = false;       // read: not yet requested
  bool head_is_known = false;     // read: lent with its content
  bool is_checked_later = false;  // read: the payload is
  bool has_record = false;        // the index waits for its release
  bool failed = false;            // one of its requests failed
  bool gives_back = false;        // put: an event `written` is wanted
  bool tell_written = false;      // `written` waits for poll()
  u32 n_io = 0;                   // in flight
  u32 n_runs = 0, next_run = 0;
  u32 landing_sector = 0;  // read: the sector at the payload's begin
  u64 tag = 0;
  u64 sequence = 0;
  u64 deadline_ns = 0;
  u64 written_at_ns = 0;
  RecordRef ref{};
  RecordRef replaced{};  // held by a put until it is published
  RecordRef erased{};    // retired; this operation frees it
  std::span<std::byte> payload{};
  std::span<std::byte> head{};  // the slot's own or lent
  std::span<const u32> token_ids{};
  std::array<Run, kRunsMax> runs{};

  bool has_ended() const { return stage == Stage::ended || stage == Stage::lent; }
};

class StoreOps {
 public:
  StoreOps(StoreFile& file, RecordIndex& index, StoreStats& stats)
      : file_(file), index_(index), stats_(stats) {}
  void init(const StoreLimits& limits, Carver& carver);

  Slot* free_slot();                        // nullptr: busy
  Slot& begin(Slot& slot, const Slot& op);  // in a free slot
  std::span<Slot> all() { return slots_; }
  std::span<const Slot> all() const { return slots_; }
  bool is_idle() const { return n_ops_ == 0; }
  // Returns the slot's own memory for a record's head.
  std::span<std::byte> own_head(const Slot& slot) const;

  // Returns false if the disk's queue is full.
  bool submit(Slot& slot, u32 run, const IoRequest& request);
  u64 tag_of(const Slot& slot) const { return slot_idx(slot) * kRunsOfTag; }
  Slot& slot_of(u64 tag);
  // Takes a completion. Returns nothing if its operation has already ended.
  Slot* take(const IoCompletion& completion);
  u64 first_deadline_ns() const;

  void end(Slot& slot, Outcome outcome);
  void end_all(Outcome outcome);
  void clear();  // forgets all slots; nothing may be in flight
  u32 hand_out(std::span<Event> events);

  // Releases a hold. The last one of a retired record frees it, if no operation erases it.
  void let_go(RecordRef ref);
  // Makes a record that the caller holds not found.
  void drop(RecordRef ref);
  // Returns whether the record was dropped, is still held, and no erasure is under way.
  bool is_dropped(RecordRef ref) const;

 private:
  bool is_erasing(RecordRef ref) const;
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
