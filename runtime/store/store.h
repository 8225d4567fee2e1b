// One file that keeps records (groups of KV, extents, manifests, codebooks) over restarts and power
// cuts. To the store a payload is bytes under a key. It is a cache: a record with any failure
// counts as absent, and bytes with a wrong checksum are never returned. FORMAT.md has the file.
//
//   thread     the owner's. put(), read(), erase() and flush() begin, poll() continues, and each
//              ends with one event. Only open() waits for the disk
//   buffers    of a payload: multiples of 4 KiB at multiples of 4 KiB, the store's from the call to
//              its event. If the event says `lent`, the disk still uses the buffer, and an event
//              `returned` follows. A put may return its buffer earlier, with an event `written`
//              before the sync
//   memory     store_bytes(limits), lent by the caller; nothing is allocated
//   when full  Begun says so; the least recently used records without holds are evicted, extents
//              first
//   off        no path: every call answers that the store is off, at no cost
//
// A record is found once its head is written, which follows the sync of its payload. It outlives a
// power cut for sure after a flush() that began later has succeeded.
//
// Writing. One sync serves all payloads that were written before it. It begins when sync_bytes or
// half of ops_max wait for it, or when a payload has waited for sync_wait_ns. It also begins when
// no payload is in flight and the caller, told so, began no new one. During a sync further
// payloads, and the heads of earlier ones, are written. A sync takes 5 to 15 ms on a busy disk, in
// which 60 MB may come at 4 GB/s: set ops_max to a few times the number of buffers.
//
// Failures. A record that cannot be read or verified is dropped and not read again. When a disk
// fails, mode() and why() tell (store_file.h).
//
// Size. Opening with another file_bytes makes the file longer or shorter in place; records in the
// remaining frames are kept. With another frame_bytes it becomes a new store. To keep existing
// records, call read_cut() first and set StoreLimits::keeps, because another process may make the
// file longer between read_cut() and the lock.
//
// Costs: a start reads 4 KiB of each frame; the index takes 64 bytes a frame in memory; frames that
// a small record does not fill. A restart loses the order of use, but keeps the order of writing.
#pragma once

#include "runtime/store/store_cut.h"
#include "runtime/store/store_reader.h"
#include "runtime/store/store_writer.h"

namespace tarn::store {

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // Bytes of memory for open(); 0 for a store that is off. Pure.
  static Result<u64> bytes(const StoreLimits& limits);
  ~Store();  // nothing may be in flight: poll() until idle()

  // Then mode() is `on`, or without a path `off`. On an error it is `off` with why(), and the disk
  // may still have requests: poll() until idle().
  Result<void> open(const StoreOpenArgs& args);
  void close();  // same precondition as the destructor
  // Switches the store off for this reason, in place of open(), or after a failed open() and
  // close(). The secret is made from `entropy`, because keys are computed all the same.
  void stay_off(const Error& why, const std::array<u8, 32>& entropy);
  // Whether the file is open and locked; it may be even after a failed opening.
  bool has_file() const { return parts_.file.is_open(); }
  // Whether the store is off and the disk still has requests after all deadlines, perhaps for ever.
  bool is_stuck() const;
  // Closes a stuck store, but leaves its file open and locked until the process ends. Everything
  // lent to it (backend, memory, buffers) must stay in place as long.
  void abandon();

  Mode mode() const { return parts_.file.mode(); }
  // Why the store is off or read-only; hint == "" while it works.
  const Error& why() const { return parts_.file.why(); }
  const Secret& secret() const { return parts_.file.label().secret; }
  const RecordIndex& index() const { return parts_.index; }
  // Records of later put() calls have this generation or a later one.
  StoreStats stats() const;

  std::optional<RecordRef> find(const Key& key) const;
  u64 head_bytes(RecordRef ref) const { return parts_.head_bytes(ref); }
  // A record that is pinned is not evicted. Pins count.
  void pin(RecordRef ref) { parts_.index.hold(ref); }
  void unpin(RecordRef ref) { parts_.ops.let_go(ref); }

  Begun put(const PutArgs& args) { return writer_.put(args); }
  Begun read(const ReadArgs& args) { return reader_.begin(args); }
  // Whether these sectors of the payload, from first_sector on, have their checksums. `head` is the
  // record's, from a read that succeeded. Any thread, while no thread writes to either.
  bool holds(std::span<const std::byte> head, u32 first_sector,
             std::span<const std::byte> sectors) const;
  // After holds() returned false: drops the record, which the caller has pinned.
  void reject(RecordRef ref) { parts_.ops.drop(ref); }
  // The record is not found from now on; the event tells that its head is gone from the disk too.
  // Also for a dropped record, which the disk still has, while a hold is left.
  Begun erase(RecordRef ref, u64 tag) { return writer_.erase(ref, tag); }
  // Ends when every operation begun before it has ended and would outlive a power cut.
  Begun flush(u64 tag) { return writer_.flush(tag); }

  // Continues, and waits at most `timeout_ns` for the disk; returns the number of events written.
  u32 poll(std::span<Event> events, u64 timeout_ns);
  bool idle() const { return parts_.ops.is_idle() && parts_.file.n_io() == 0; }
  // Whether an operation will end by itself, at the latest at its deadline. If none will, all wait
  // for records to be unpinned, and polling after `busy` frees no slot.
  bool will_go_on() const;

 private:
  void go_on(When when);
  void take(const IoCompletion& completion);
  u64 first_deadline_ns() const;
  u64 until_deadline_ns(u64 timeout_ns) const;

  StoreParts parts_{};
  StoreReader reader_{parts_};
  StoreWriter writer_{parts_};
};

inline Result<u64> store_bytes(const StoreLimits& limits) { return Store::bytes(limits); }

}  // namespace tarn::store
