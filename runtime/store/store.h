// runtime/store/store.h
//
// One file that keeps records (groups of KV, extents, manifests, codebooks) over restarts
// and power cuts. To the store a payload is bytes under a key. It is a cache: whatever goes wrong
// with a record, it is treated as absent, and bytes that do not have their checksums are never
// handed out (ROBUSTNESS K1 to K7). record.h has the bytes of the file.
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
// mode() and why() say so. Who was stopped for a minute, in a frozen container or a paused machine,
// has learnt nothing of the disk: of the time between two looks kUnwatchedMaxNs count, beside what
// poll() was to wait. What cannot be read at open costs no more than itself: one of two labels is
// written again, a record whose head is lost is absent; where kUnreadInARowMax heads in a row are,
// it is the disk.
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

#include <optional>
#include <span>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "runtime/store/record_index.h"

namespace tarn::store {

inline constexpr u32 kOpsMax = 256;
inline constexpr u32 kRunsMax = 16;  // requests of one read
inline constexpr u32 kUnreadInARowMax = 64;
inline constexpr u64 kUnwatchedMaxNs = 1'000'000'000;

struct StoreLimits {
  u64 file_bytes = 0;   // the file's size, and the quota; 0: the store is off
  u64 frame_bytes = 0;  // RecordShape::record_bytes() of the most frequent record suits
  u64 head_bytes_max = kSectorBytes;  // RecordShape::head_bytes() of the longest
  u32 ops_max = 64;                   // puts, reads, erasures and flushes at one time
  u64 write_bytes_per_day = 0;        // 0: no limit
  u64 io_deadline_ns = 30'000'000'000;
  u64 lock_wait_ns = 2'000'000'000;  // for a predecessor that has just died
  u64 sync_bytes = 16 * kMiB;        // written payload that is enough for a sync
  u64 sync_wait_ns = 10'000'000;     // how long a written payload waits for more to share its sync
  u32 read_errors_max = 8;
  u32 gap_sectors_max = 4;  // unwanted sectors that a read takes along to save a request
  bool keeps = false;       // refuses a file that it would have to make shorter or cut anew
};

enum class Mode : u8 { off, opening, on, read_only };

struct StoreOpenArgs {
  IoBackend* io = nullptr;  // the store's own
  Clock* clock = nullptr;
  const char* path = nullptr;  // of the file, in a directory of the owner's; nullptr: off
  StoreLimits limits{};
  std::span<std::byte> memory{};
  std::array<u8, 32> entropy{};  // for the secret, should the file be new
  const Crc32c* crc = nullptr;   // of crc32c_ways()
};

// How a call began. Everything but `begun` means that nothing happens and no event follows.
enum class Begun : u8 {
  begun,
  known,        // a record of this key is here or on its way
  busy,         // ops_max are on their way: poll first
  no_room,      // all frames are held, or too few in a row are not
  over_budget,  // of written bytes: later
  gone,         // the record is no longer there
  not_now,      // off, opening, or read-only: mode() says which
};

enum class Outcome : u8 {
  ok,
  other_tokens,  // read: the key's, but not of these tokens (a collision); the record stays
  corrupt,       // read: a checksum or the identity did not hold; dropped
  io_failed,     // read: dropped. put: nothing is kept
  stalled,       // the store was turned off before this ended
  returned,      // a buffer that was lent at the first event is the caller's again
  written,       // put until_written: the buffer is the caller's again; the put's own event follows
};

enum class Op : u8 { none, put, read, erase, flush };

struct Event {
  Op op = Op::none;
  Outcome outcome = Outcome::ok;
  bool lent = false;  // the buffer is still the disk's; `returned` will follow
  u64 tag = 0;
  RecordRef ref{};
};

struct PutArgs {
  Kind kind = Kind::group;
  Key key{};
  std::span<const u32> token_ids{};  // copied
  std::span<std::byte> payload{};    // padded to 4 KiB, kept by the store until the event
  u64 payload_bytes = 0;
  enum class If : u8 {
    absent,
    replace
  } known = If::absent;  // replace: the old one is erased after
  enum class Payload : u8 {
    until_event,
    until_written
  } kept = Payload::until_event;  // until_written: an event `written` may come before the event
  u64 tag = 0;
};

struct ReadArgs {
  RecordRef ref{};
  std::span<const u32> token_ids{};  // that the record's must begin with; kept
  std::span<std::byte> payload{};    // as long as the padded payload; kept
  // A part alone: the payload's sectors from this one on, as many as `payload` has room for.
  std::optional<u32> first_sector{};
  std::span<const u32> sectors{};  // wanted ones, ascending; empty: all. Others may be overwritten
  // Lent for good by a reader that comes often: holds the record's head after a read that went
  // well, and the next read that brings it asks the disk for payload alone. Of head_bytes(ref).
  std::span<std::byte> head{};
  // It holds the head already, and nobody has written to it since: its checksums are not worked out
  // again. Should memory have lost a bit of it, sectors look corrupt that are not.
  bool head_is_known = false;
  // The payload is not verified before the event: the caller does it, by holds().
  bool is_checked_later = false;
  u64 tag = 0;
};

struct StoreStats {
  u64 n_puts = 0, n_published = 0, n_reads = 0, n_reads_ok = 0, n_dropped = 0, n_erased = 0;
  u64 n_put_failures = 0, n_read_errors = 0, n_write_errors = 0, n_syncs = 0, n_requests = 0;
  u64 bytes_written = 0, bytes_read = 0;  // since open
  u64 bytes_written_ever = 0;             // of the file's life, as far as is known
  u64 budget_left_bytes = 0;              // now
  u64 scan_ns = 0;
  u32 n_found_at_start = 0;
  u64 n_evicted = 0;            // records that gave way to new ones, since open
  u64 n_manifests_evicted = 0;  // of them, manifests
  u32 n_unread_at_start = 0;    // heads that the disk did not give; their records are absent
  u32 n_damaged_at_start = 0;   // heads whose checksum did not hold, and frames that were cut off
  bool labels_lost = false;     // the file was no empty one, had no good label, and began anew
};

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
  bool has_file() const { return file_is_open_; }
  // The store is off, and the disk still has requests after the deadline of each: perhaps for ever.
  bool is_stuck() const;
  // For who is stuck: the store is closed, but its file is open, and locked, for as long as the
  // process lives; what was lent to it (backend, memory, buffers) must stay where it is as long.
  void abandon();

  Mode mode() const { return mode_; }
  // Why the store is off or read-only; hint == "" while all is well.
  const Error& why() const { return why_; }
  const Secret& secret() const { return label_.secret; }
  const RecordIndex& index() const { return index_; }
  // What is put from now on has this generation or a later one.
  u64 next_generation() const { return next_generation_; }
  StoreStats stats() const;

  std::optional<RecordRef> find(const Key& key) const;
  u64 head_bytes(RecordRef ref) const;
  // A record that is pinned is not evicted. Pins count.
  void pin(RecordRef ref) { index_.hold(ref); }
  void unpin(RecordRef ref);

  Begun put(const PutArgs& args);
  Begun read(const ReadArgs& args);
  // Whether these sectors, which lie in the payload from first_sector on, have their checksums;
  // `head` is the record's, from a read that went well. Any thread, while none writes to either.
  bool holds(std::span<const std::byte> head, u32 first_sector,
             std::span<const std::byte> sectors) const;
  // They had not: drops the record, which the caller has pinned.
  void reject(RecordRef ref) { drop(ref); }
  // No longer found from now on; the event says that its head is gone from the disk too.
  Begun erase(RecordRef ref, u64 tag);
  // Whether the write budget has so many bytes now; no more than a day's.
  bool affords(u64 n_bytes) const;
  // Ends when all that was begun before it has ended and would outlive a power cut.
  Begun flush(u64 tag);

  // Goes on, waiting at most `timeout_ns` for the disk; returns how many events were written.
  u32 poll(std::span<Event> events, u64 timeout_ns);
  bool idle() const { return n_ops_ == 0 && n_io_ == 0; }
  // Whether an operation will end by itself, at the latest at its deadline: where none will, all
  // wait for records to be unpinned, and who was told `busy` need not wait for a place.
  bool will_go_on() const;

 private:
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
  };
  enum class Opening : u8 {
    locking,
    labels,
    each_label,
    new_labels,
    label_sync,
    scan,
    weigh,
    stale_sync,
    stale,
    done
  };

  // store_open.cpp
  void go_on_opening();
  void try_lock();
  void read_next_label();
  void take_labels(i64 result);
  void take_label(i64 result);
  bool has_blank_labels() const;
  void weigh_labels();
  void begin_new_file();
  void write_labels(u64 first_label);
  void write_label();
  void scan_more();
  void take_scan(Slot& slot, i64 result);
  void weigh_more();
  void begin_stale();
  void erase_stale();
  void take_stale(Slot& slot, i64 result);
  void finish_opening();
  void fail_opening(const Error& error);
  void take_opening(const IoCompletion& completion);
  bool submit_opening(const IoRequest& request);

  // store.cpp
  Slot* free_slot();
  u64 slot_idx(const Slot& slot) const;
  std::span<std::byte> own_head(const Slot& slot) const;
  void plan_runs(Slot& slot, std::span<const u32> sectors, u64 n_sectors) const;
  u64 filled_bytes() const;
  void refill_budget();
  u64 level_for_head() const;
  u64 offset_of(u32 frame_idx) const;
  Place place_of(u32 frame_idx) const;
  RecordShape shape_of(RecordRef ref) const;

  // store_work.cpp
  bool submit(Slot& slot, u32 run, const IoRequest& request);
  enum class When : u8 { poll_begins, poll_ends };
  void go_on(When when);
  void go_on_put(Slot& slot);
  void go_on_read(Slot& slot);
  void go_on_erase(Slot& slot);
  void go_on_burial(Slot& slot);
  bool submit_grave(Slot& slot, u32 frame_idx);
  void go_on_sync(When when);
  bool sync_is_due(When when) const;
  bool flush_is_due(const Slot& slot) const;
  void take(const IoCompletion& completion);
  void take_put(Slot& slot);
  void take_sync(i64 result);
  bool put_still_holds(const Slot& slot) const;
  std::optional<HeadView> head_of(const Slot& slot) const;
  Outcome verified_read(const Slot& slot) const;
  void publish(Slot& slot);
  void end(Slot& slot, Outcome outcome);
  void release(Slot& slot);
  void let_go(RecordRef ref);
  void drop(RecordRef ref);
  void note_write_error(i64 result);
  void note_read_error(i64 result);
  void note_unread_head(i64 result);
  void fall_to(Mode mode, const char* hint, i64 result);
  u64 watched_now(u64 waited_ns);
  u64 next_deadline();
  void check_deadlines();
  u64 until_deadline_ns(u64 timeout_ns);
  u32 hand_out(std::span<Event> events);

  IoBackend* io_ = nullptr;
  Clock* clock_ = nullptr;
  const Crc32c* crc_ = nullptr;
  StoreLimits limits_{};
  Mode mode_ = Mode::off;
  Error why_{};
  IoFile file_{};
  bool file_is_open_ = false;
  std::array<char, 1024> path_{};
  Label label_{};
  std::array<u8, 32> entropy_{};
  bool file_is_new_ = false;
  RecordIndex index_{};
  std::span<Slot> slots_{};
  std::span<std::byte> heads_{};   // [ops_max][head_bytes_max]
  std::span<std::byte> labels_{};  // two sectors; later zeros, for stale manifests
  u32 n_ops_ = 0;
  u32 n_io_ = 0;  // requests in flight, the sync and the opening's included
  u64 next_sequence_ = 1;
  u64 next_generation_ = 1;
  bool sync_in_flight_ = false;
  // Deadlines are of the time for which the disk was watched, not of the clock's.
  u64 watched_ns_ = 0;
  u64 seen_at_ns_ = 0;  // by the clock
  u64 last_deadline_ns_ = 0;
  u64 sync_deadline_ns_ = 0;
  u64 budget_bytes_ = 0;
  u64 budget_at_ns_ = 0;
  u64 written_before_bytes_ = 0;
  StoreStats stats_{};

  Opening opening_ = Opening::locking;
  u64 opened_at_ns_ = 0;
  u64 opening_deadline_ns_ = 0;
  u64 next_label_ = 0;
  std::array<bool, kLabels> label_is_read_{};
  u32 n_unread_in_a_row_ = 0;
  u32 scan_next_ = 0, scan_in_flight_ = 0, weigh_next_ = 0;
  u64 youngest_generation_ = 0;
  u64 cursor_generation_ = 0;  // of the youngest record that is no manifest, and where it lies
  u32 cursor_frame_ = 0;
};

// How the file at `path` is cut, as far as it reaches; 0 frames where there is none, or it is no
// store's of this version, and an error where that cannot be known. `sectors`: kFramesBegin bytes,
// aligned to a sector. Nothing else may be in flight on `io`.
struct Cut {
  u64 frame_bytes = 0;
  u32 n_frames = 0;
};
Result<Cut> read_cut(IoBackend& io, const Crc32c& crc, const char* path,
                     std::span<std::byte> sectors);

// Whether this error of read_cut(), open() or the folder's making is the disk's (a failed call, no
// room, no folder any more, no answer) rather than a matter of how the store was set up, or of
// another process that has it.
bool is_disk_failure(const Error& error);

inline Result<u64> store_bytes(const StoreLimits& limits) { return Store::bytes(limits); }

}  // namespace tarn::store
