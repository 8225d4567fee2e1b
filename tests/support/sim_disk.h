// A disk in memory, in virtual time, with the faults of real disks, and the third IoBackend on top
// of it. Everything follows from the seed and the script, so a failure repeats.
//
// The fault model is that of ROBUSTNESS 2.2. Faults of calls are scripted (SimScript::faults) or
// drawn (SimScript::ppm). They are errors, short and empty transfers, and calls that take 10 s or
// never end. Writes may be acknowledged and lost, written to another place, or written with a
// flipped bit or a zeroed sector. Reads may have a flipped bit. A failed sync leaves its writes
// undefined. Faults of the disk: power_loss() keeps, loses, reorders and tears (at 512 bytes)
// writes that were not synced; also capacity, read-only, truncation, replacement, rot. A fault that
// has an effect is counted.
//
//   SimDisk   the medium's content; a value: copy it before power_loss() to try another outcome
//   SimIo     one process' connection to a disk. Destroying it acts like the death of the process:
//             locks are released, and a write in flight is done or not.
//   time      a request takes a random latency; reap() moves the clock to the next completion, and
//             a poll costs a microsecond, so that polling passes time
//   buffers   a read's buffer holds garbage until its completion; changing a write's buffer before
//             its completion is an assertion
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/io/io_backend.h"
#include "platform/io/io_transfer.h"
#include "tests/support/seed.h"

namespace tarn::test {

inline constexpr u64 kTornBytes = 512;  // the unit that a power loss keeps whole

enum class SimFault : u8 {
  error,              // the call answers -errno; a part of a write may be done
  short_call,         // a part is moved
  no_progress,        // nothing is moved, and the answer is 0
  slow,               // 10 s
  never,              // no answer until let_stuck_go()
  lost_write,         // acknowledged, not done: the disk still has the stale bytes
  misdirected_write,  // acknowledged, done elsewhere in the file
  flipped_write,      // one written bit is wrong
  zeroed_write,       // one written sector is zero
  flipped_read,       // one bit of the answer is wrong, not on the disk
};
inline constexpr u32 kSimFaults = 10;
const char* sim_fault_name(SimFault fault);

struct SimScriptedFault {
  SimFault fault = SimFault::error;
  u64 first_call = 0;  // counted over all calls of the disk, from 0
  u64 n_calls = 1;     // ~0: from then on
  int error = 5;       // errno of SimFault::error (EIO)
};

struct SimScript {
  std::vector<SimScriptedFault> faults;
  std::array<u32, kSimFaults> ppm{};  // chance of each fault, per million calls that can have it
  std::vector<int> errors = {5};      // errnos that SimFault::error draws from
  u64 latency_ns_min = 20'000;
  u64 latency_ns_max = 200'000;
  u64 capacity_bytes = 64 * kMiB;
  bool read_only = false;
};

enum class SimKept : u8 { none, all, some, by_mask };

struct SimPowerLoss {
  SimKept kept = SimKept::some;
  u64 mask = 0;       // by_mask: bit i keeps the i-th of unsynced_writes()
  bool torn = false;  // each 512 bytes of a kept write by themselves
  u64 seed = 1;
};

class SimDisk {
 public:
  explicit SimDisk(u64 seed) : random_(seed) {}

  SimScript script{};

  // Replaces the file's content, as read and as durable; makes the file if it is missing. Writes in
  // flight go to the new content.
  void write_file(const std::string& path, std::span<const std::byte> bytes);
  bool has_file(const std::string& path) const { return names_.count(path) != 0; }
  std::vector<std::byte> file_bytes(const std::string& path) const;
  void truncate_file(const std::string& path, u64 bytes);
  void flip_bit(const std::string& path, u64 bit_idx);
  // Reads that touch the sector at this offset end with EIO, until it is written again.
  void spoil_sector(const std::string& path, u64 offset);

  // Writes that a power loss may undo, including those in flight.
  u64 unsynced_writes() const { return unsynced_.size(); }
  // Every SimIo must be destroyed before this call, or use a copy of the disk.
  void power_loss(const SimPowerLoss& how);

  u64 n_calls() const { return n_calls_; }
  // Grows whenever a write becomes in flight, unsynced or synced.
  u64 n_write_events() const { return n_write_events_; }
  u64 n_syncs() const { return n_syncs_; }
  u64 bytes_read() const { return bytes_read_; }
  u64 bytes_written() const { return bytes_written_; }
  u64 hits(SimFault fault) const { return hits_[static_cast<u32>(fault)]; }
  // Hits of SimFault::error with one errno, and those at a sync.
  u64 error_hits(int error) const {
    const auto found = error_hits_.find(error);
    return found == error_hits_.end() ? 0 : found->second;
  }
  u64 n_sync_failures() const { return n_sync_failures_; }
  // Reads of a spoiled sector, and reads beyond the end of their file.
  u64 n_spoiled_reads() const { return n_spoiled_reads_; }
  u64 n_cut_reads() const { return n_cut_reads_; }

 private:
  friend class SimIo;

  struct File {
    std::vector<std::byte> now;      // the content that reads see
    std::vector<std::byte> durable;  // the content after any power loss
    std::set<u64> spoiled;           // offsets of sectors that cannot be read
    bool locked = false;
  };
  // A write between its submission and the sync that makes it durable.
  struct Write {
    u64 id = 0;
    u32 file_idx = 0;
    u64 offset = 0;
    std::vector<std::byte> bytes;
    u64 done_idx = 0;  // 1 for the first write that was done; 0: in flight
  };
  struct Planned {
    bool has_fault = false;
    SimFault fault = SimFault::error;
    int error = 0;
    u64 latency_ns = 0;
  };

  static void put(std::vector<std::byte>& to, u64 offset, std::span<const std::byte> bytes);
  bool can_befall(SimFault fault, const IoRequest& request) const;
  Planned plan_call(const IoRequest& request);
  void count(SimFault fault) { ++hits_[static_cast<u32>(fault)]; }
  u64 used_bytes() const;

  u64 begin_write(u32 file_idx, u64 offset, std::span<const std::byte> bytes);
  void drop_write(u64 id);
  void finish_write(u64 id, const Planned& planned);
  i64 read(u32 file_idx, u64 offset, std::span<std::byte> buffer, const Planned& planned);
  void sync(u32 file_idx, u64 writes_before);
  void fail_sync(u32 file_idx);

  Random random_;
  std::map<std::string, u32> names_;
  std::vector<File> files_;
  std::vector<Write> unsynced_;  // done writes first, in their order; then those in flight
  u64 next_write_id_ = 1;
  u64 n_done_writes_ = 0;
  std::array<u64, kSimFaults> hits_{};
  std::map<int, u64> error_hits_;
  u64 n_sync_failures_ = 0, n_spoiled_reads_ = 0, n_cut_reads_ = 0;
  u64 n_calls_ = 0, n_write_events_ = 0, n_syncs_ = 0, bytes_read_ = 0, bytes_written_ = 0;
};

class SimIo final : public IoBackend {
 public:
  // Both are borrowed.
  SimIo(SimDisk& disk, VirtualClock& clock, u32 in_flight_max = 32)
      : disk_(disk), clock_(clock), in_flight_max_(in_flight_max) {}
  SimIo(const SimIo&) = delete;
  SimIo& operator=(const SimIo&) = delete;
  ~SimIo() override;

  // Ends the requests that "never" end: late, after the caller gave them up.
  void let_stuck_go();
  // Makes requests in flight never end, until let_stuck_go().
  void get_stuck();
  u32 n_in_flight() const { return static_cast<u32>(calls_.size() + done_.size()); }

  const char* name() const override { return "simulated"; }
  u32 in_flight_max() const override { return in_flight_max_; }
  Result<IoFile> open(const IoOpenArgs& args) override;
  bool is_direct(IoFile file) const override { return entry(file).direct; }
  Result<u64> size_bytes(IoFile file) override;
  Result<void> allocate(IoFile file, u64 bytes) override;
  void close(IoFile file) override;
  bool register_buffers(std::span<const std::span<std::byte>> buffers) override;
  bool submit(const IoRequest& request) override;
  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override;

 private:
  static constexpr u64 kNeverNs = ~u64{0};
  static constexpr u64 kSlowNs = 10'000'000'000;
  static constexpr u64 kLookNs = 1'000;

  struct Open {
    u32 file_idx = 0;
    bool is_open = false, write = false, direct = false, exclusive = false;
  };
  struct Call {
    IoTransfer transfer{};
    SimDisk::Planned planned{};
    u64 due_ns = 0;
    u64 write_id = 0;       // 0: no write
    u64 writes_before = 0;  // for a sync: writes done before it was submitted
  };

  const Open& entry(IoFile file) const;
  void start(Call call);
  i64 perform(const Call& call);
  i64 perform_write(const Call& call);
  bool run_due(u64 until_ns);  // runs the earliest call that is due by until_ns

  SimDisk& disk_;
  VirtualClock& clock_;
  const u32 in_flight_max_;
  std::array<Open, kIoFilesMax> files_{};
  std::vector<Call> calls_;
  std::deque<IoCompletion> done_;
};

}  // namespace tarn::test
