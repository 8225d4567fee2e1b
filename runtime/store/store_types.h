// The arguments and results of a store's calls. store.h has the contract.
#pragma once

#include <optional>
#include <span>

#include "platform/base/result.h"
#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "runtime/store/index_entry.h"

namespace tarn::store {

inline constexpr u32 kOpsMax = 256;

struct StoreLimits {
  u64 file_bytes = 0;   // the file's size, and the quota; 0: the store is off
  u64 frame_bytes = 0;  // best: RecordShape::record_bytes() of the most frequent record
  u64 head_bytes_max = kSectorBytes;  // RecordShape::head_bytes() of the longest record
  u32 ops_max = 64;                   // puts, reads, erasures and flushes at one time
  u64 write_bytes_per_day = 0;        // 0: no limit
  u64 io_deadline_ns = 30'000'000'000;
  u64 lock_wait_ns = 2'000'000'000;  // waits for a process that has just died
  u64 sync_bytes = 16 * kMiB;        // written payload that starts a sync
  u64 sync_wait_ns = 10'000'000;     // how long a written payload waits for more to share its sync
  u32 read_errors_max = 8;           // with this one the store is switched off
  u32 gap_sectors_max = 4;           // sectors read in addition, to save a request
  bool keeps = false;                // refuses a file that it would have to shorten or re-create
  bool clears_damage = false;        // opening overwrites damaged and unreadable heads
  bool reads_alone = false;          // changes nothing, so the file may lie on read-only media
};

enum class Mode : u8 { off, on, read_only };

struct StoreOpenArgs {
  IoBackend* io = nullptr;  // the store's own
  Clock* clock = nullptr;
  const char* path = nullptr;  // of the file, in a directory of the owner's; nullptr: off
  StoreLimits limits{};
  std::span<std::byte> memory{};
  std::array<u8, 32> entropy{};  // for the secret of a new file
  const Crc32c* crc = nullptr;   // of crc32c_ways()
};

// The result of beginning a call. Except for `begun` nothing happens and no event follows.
enum class Begun : u8 {
  begun,
  known,        // a record of this key exists or is being written
  busy,         // ops_max are in flight: poll first
  no_room,      // all frames are held, or too few consecutive ones are not
  over_budget,  // the write budget is used up: try later
  gone,         // the record no longer exists
  not_now,      // off or read-only: see mode()
};

enum class Outcome : u8 {
  ok,
  other_tokens,  // read: same key, other tokens (a collision); the record stays
  corrupt,       // read: a wrong checksum or identity; dropped
  io_failed,     // read: dropped. put: nothing is kept
  stalled,       // the store was switched off before the end
  returned,      // the buffer that was `lent` at the first event is the caller's again
  written,       // put until_written: the buffer is the caller's again; the put's own event follows
};

enum class Op : u8 { none, put, read, erase, flush };

struct Event {
  Op op = Op::none;
  Outcome outcome = Outcome::ok;
  // The disk still uses the buffer, which stays in place; `returned` follows. A put's buffer may
  // change: its record is never published.
  bool lent = false;
  u64 tag = 0;
  RecordRef ref{};
};

struct PutArgs {
  Kind kind = Kind::group;
  Key key{};
  std::span<const u32> token_ids{};  // copied
  std::span<std::byte> payload{};    // padded to 4 KiB; the store uses it until the event
  u64 payload_bytes = 0;
  enum class If : u8 {
    absent,
    replace
  } known = If::absent;  // replace: the old record is erased afterwards
  enum class Payload : u8 {
    until_event,
    until_written
  } kept = Payload::until_event;  // until_written: an event `written` may come before the event
  u64 tag = 0;
};

struct ReadArgs {
  RecordRef ref{};
  std::span<const u32> token_ids{};  // the record's must begin with them; used until the event
  std::span<std::byte> payload{};    // as long as the padded payload; used until the event
  // Reads a part: the payload's sectors from this one on, as many as `payload` has room for.
  std::optional<u32> first_sector{};
  std::span<const u32> sectors{};  // ascending; empty: all. Other sectors may be overwritten
  // For repeated reads of one record: memory of head_bytes(ref), which has the record's head after
  // a successful read. The next read with it asks the disk only for payload.
  std::span<std::byte> head{};
  // `head` has the record's head, unchanged: its checksums are not verified again. If a bit of it
  // flipped in memory, good sectors look corrupt.
  bool head_is_known = false;
  // The payload is not verified before the event: the caller calls holds() for what it uses.
  bool is_checked_later = false;
  u64 tag = 0;
};

struct StoreStats {
  u64 frame_bytes = 0;
  u64 n_puts = 0, n_published = 0, n_reads = 0, n_dropped = 0, n_erased = 0;
  u64 n_read_errors = 0, n_write_errors = 0, n_syncs = 0, n_requests = 0;
  u64 bytes_written = 0, bytes_read = 0;  // since open
  u64 bytes_written_ever = 0;             // of the file's life, as far as known
  u64 budget_left_bytes = 0;              // now
  u32 n_unread_at_start = 0;              // unreadable heads; their records are absent
  u32 n_damaged_at_start = 0;  // heads with a wrong checksum, and frames beyond the file's end
  bool labels_lost = false;    // the file was not empty, had no good label, and began anew
};

}  // namespace tarn::store
