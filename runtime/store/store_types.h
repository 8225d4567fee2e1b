// runtime/store/store_types.h
//
// What a store's callers hand it and hear from it. store.h has the contract.
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

}  // namespace tarn::store
