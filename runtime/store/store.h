// runtime/store/store.h
//
// One file that keeps records (groups of KV, extents, manifests, codebooks) over restarts and power
// cuts. To the store a payload is bytes under a key. It is a cache: whatever goes wrong with a
// record, it is treated as absent, and bytes that do not have their checksums are never handed out
// (ROBUSTNESS K1 to K7). record.h has the bytes of the file.
//
// Store owns the parts: store_file.h (the file and its requests), record_index.h (which record lies
// where), store_ops.h (operations in flight), store_scan.h (the opening), store_reader.h,
// store_writer.h, write_budget.h and store_health.h.
//
//   thread     its owner's alone. It has no thread: put(), read(), erase() and flush() begin,
//              poll() goes on, and each ends with one event.
//   buffers    of a payload: multiples of 4 KiB at multiples of 4 KiB, the store's from the call to
//              its event. A read lands in the caller's frame, with no copy. Where an event says
//              `lent`, the disk still has the buffer, and an event `returned` follows. A put may
//              give its buffer back with an event `written` of its own, before the sync.
//   memory     store_bytes(limits), lent by the caller; nothing is allocated
//   when full  Begun says so; the least recently used records give way that nobody holds, extents
//              before all others
//   off        no path: every call answers off, at no cost
//
// A record's life: reserved -> writing (its payload) -> verified (the buffer still had its
// checksums when the disk had taken it, and a sync that began later came back) -> published (its
// head, one sector, is written) -> held by pins and reads, or evictable -> retired -> completed ->
// free. A record is found once it is published. It surely outlives a power cut when a flush() that
// began later has ended well.
//
// Writing. Payloads go out as they come, side by side in the file, so that the disk sees long runs;
// one sync serves all that were written before it. It begins when sync_bytes or half of ops_max
// wait for it, or one has waited sync_wait_ns, or no other is on its way and the caller, who has
// heard of it, began none; meanwhile further payloads, and the heads of those before, go out. A
// sync takes 5 to 15 ms on a busy disk, and what comes in that time must find a place: 60 MB at
// 4 GB/s. So a payload's buffer need not wait for it (Payload::until_written), only the operation
// does: let ops_max be a few times the buffers.
//
// Reading. The sectors that are wanted, those within gap_sectors_max of each other in one request,
// and the head beside them; all is verified. Who reads much may verify the payload himself, on
// other threads (is_checked_later): then he owes a call of holds() to each sector that he looks at.
//
// Failures. A record that could not be read or does not verify is dropped and not asked again. The
// first failed sync or second failed write makes the store read-only until it is opened again; read
// errors beyond read_errors_max, or a request that does not end in io_deadline_ns, switch it off.
// mode() and why() say so (store_health.h). A deadline counts only the time for which the disk was
// watched (store_file.h). store_scan.h says what an opening survives.
//
// The write budget is a bucket of write_bytes_per_day that fills by the monotonic clock while the
// store is open. Its level is in every head, that of a grave (record.h) too, and the youngest's is
// what a restart goes on with: a box that restarts all day does not write all day. Who opens it
// without a limit leaves a full bucket.
//
// Size. A file that is opened with another file_bytes is made longer or shorter in place: records
// in the frames that stay are kept. With another frame_bytes it becomes a new store. Whoever wants
// to keep what is there asks read_cut() first, and sets StoreLimits::keeps: between that look and
// the lock somebody else may have made the file longer.
//
// Benefits: no index on disk to go wrong, nothing to repair, a start that reads one sector a frame.
// Costs: that start (4 KiB of each frame_bytes), a table of 64 bytes a frame in memory, frames that
// a small record does not fill, and the order of use forgotten at a restart (that of writing
// stays).
#pragma once

#include "runtime/store/store_cut.h"
#include "runtime/store/store_reader.h"
#include "runtime/store/store_scan.h"
#include "runtime/store/store_writer.h"

namespace tarn::store {

class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  // What open() wants as memory; 0 for a store that is off. Pure.
  static Result<u64> bytes(const StoreLimits& limits);
  ~Store();  // nothing may be in flight: poll() until idle()

  // Begins; poll() until mode() is not `opening`. Then it is `on`, or `off` with why().
  Result<void> open(const StoreOpenArgs& args);
  void close();  // as the destructor
  // Instead of open(), or after it has failed and close(): off, for this reason. The secret is made
  // of `entropy`, since keys are worked out all the same.
  void stay_off(const Error& why, const std::array<u8, 32>& entropy);
  // Whether it has the file open and locked; it may, though it did not come up.
  bool has_file() const { return parts_.file.is_open(); }
  // The store is off, and the disk still has requests after the deadline of each: perhaps for ever.
  bool is_stuck() const;
  // For who is stuck: the store is closed, but its file is open, and locked, for as long as the
  // process lives; what was lent to it (backend, memory, buffers) must stay where it is as long.
  void abandon();

  Mode mode() const { return parts_.health.mode(); }
  // Why the store is off or read-only; hint == "" while all is well.
  const Error& why() const { return parts_.health.why(); }
  const Secret& secret() const { return parts_.file.label().secret; }
  const RecordIndex& index() const { return parts_.index; }
  // What is put from now on has this generation or a later one.
  u64 next_generation() const { return writer_.next_generation(); }
  StoreStats stats() const;

  std::optional<RecordRef> find(const Key& key) const;
  u64 head_bytes(RecordRef ref) const { return parts_.head_bytes(ref); }
  // A record that is pinned is not evicted. Pins count.
  void pin(RecordRef ref) { parts_.index.hold(ref); }
  void unpin(RecordRef ref) { parts_.ops.let_go(ref); }

  Begun put(const PutArgs& args) { return writer_.put(args); }
  Begun read(const ReadArgs& args) { return reader_.begin(args); }
  // Whether these sectors, which lie in the payload from first_sector on, have their checksums;
  // `head` is the record's, from a read that went well. Any thread, while none writes to either.
  bool holds(std::span<const std::byte> head, u32 first_sector,
             std::span<const std::byte> sectors) const;
  // They had not: drops the record, which the caller has pinned.
  void reject(RecordRef ref) { parts_.ops.drop(ref); }
  // No longer found from now on; the event says that its head is gone from the disk too.
  Begun erase(RecordRef ref, u64 tag) { return writer_.erase(ref, tag); }
  // Whether the write budget has so many bytes now; no more than a day's.
  bool affords(u64 n_bytes) const { return writer_.budget().affords(n_bytes); }
  // Ends when all that was begun before it has ended and would outlive a power cut.
  Begun flush(u64 tag) { return writer_.flush(tag); }

  // Goes on, waiting at most `timeout_ns` for the disk; returns how many events were written.
  u32 poll(std::span<Event> events, u64 timeout_ns);
  bool idle() const { return parts_.ops.is_idle() && parts_.file.n_io() == 0; }
  // Whether an operation will end by itself, at the latest at its deadline: where none will, all
  // wait for records to be unpinned, and who was told `busy` need not wait for a place.
  bool will_go_on() const;

 private:
  void go_on(When when);
  void take(const IoCompletion& completion);
  u64 first_deadline_ns() const;
  u64 until_deadline_ns(u64 timeout_ns) const;

  StoreParts parts_{};
  StoreScan scan_{parts_};
  StoreReader reader_{parts_};
  StoreWriter writer_{parts_};
};

inline Result<u64> store_bytes(const StoreLimits& limits) { return Store::bytes(limits); }

}  // namespace tarn::store
