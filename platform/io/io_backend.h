// Asynchronous file I/O with a fixed bound on what is in flight. Two real implementations pass the
// same tests: io_uring, and a pool of threads that call pread and pwrite where the ring is refused
// (containers, old kernels). A third one, simulated, belongs to the tests
// (tests/support/sim_disk.h).
//
//   thread       one thread uses a backend
//   alignment    direct files need offset, length and buffer in multiples of kSectorBytes, and
//                answer anything else with -EINVAL; the end of the file may lie inside a sector
//   in flight    from submit() until reap() has returned the completion
//   when full    submit() returns false; reap completions first
//   buffers      belong to the backend from submit() to their own completion
#pragma once

#include <optional>
#include <span>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

inline constexpr u64 kSectorBytes = 4096;
inline constexpr u32 kIoInFlightMax = 256;
inline constexpr u32 kIoFilesMax = 64;  // open at one time
inline constexpr u32 kIoThreadsMax = 32;

enum class IoOp : u8 { read, write, sync_data };

struct IoFile {
  i32 index = -1;  // an entry of the backend's table, not a descriptor
};

struct IoOpenArgs {
  const char* path = "";
  bool write = false;
  bool create = false;
  bool direct =
      true;  // O_DIRECT; falls back to buffered where the file system refuses it, see is_direct
  // Locks the file against every other exclusive open, in this process or another (advisory,
  // flock). If the lock is taken, open() fails with errno EWOULDBLOCK. Closing the file or ending
  // the process releases it; after a process with a ring has died, that may take some milliseconds.
  bool exclusive = false;
};

struct IoRequest {
  IoOp op = IoOp::read;
  IoFile file{};
  u64 offset = 0;
  std::span<std::byte> buffer{};
  u64 tag = 0;  // comes back with the completion
};

struct IoCompletion {
  u64 tag = 0;
  i64 result = 0;  // bytes moved, fewer than asked only at the end of the file; or -errno
};

class IoBackend {
 public:
  virtual ~IoBackend() = default;
  virtual const char* name() const = 0;  // "io_uring" or "threads"
  virtual u32 in_flight_max() const = 0;

  virtual Result<IoFile> open(const IoOpenArgs& args) = 0;
  virtual bool is_direct(IoFile file) const = 0;
  virtual Result<u64> size_bytes(IoFile file) = 0;  // asks the system each time
  // Makes the file exactly `bytes` long and reserves its space, so that later writes inside it
  // cannot find the disk full. (Where the file system cannot reserve, only the length is set.)
  // Existing bytes stay, new bytes read as zero. On failure the file keeps its old length and the
  // space is freed. Waits for the system; nothing of the file may be in flight.
  virtual Result<void> allocate(IoFile file, u64 bytes) = 0;
  virtual void close(IoFile file) = 0;  // nothing of it may be in flight

  // Registers memory for faster direct I/O, in place of earlier registrations; nothing may be in
  // flight. A refusal (RLIMIT_MEMLOCK, a backend that cannot) is no error.
  virtual bool register_buffers(std::span<const std::span<std::byte>> buffers) = 0;

  virtual bool submit(const IoRequest& request) = 0;
  // Waits for at least `n_min` completions (or all, if fewer are in flight) or the timeout. Returns
  // how many it wrote, in any order. A timeout of ~0 waits for ever, 0 only polls.
  virtual u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) = 0;
};

enum class IoKind : u8 { automatic, uring, threads };
struct IoConfig {
  IoKind kind = IoKind::automatic;
  u32 in_flight_max = 32;  // 1 to kIoInFlightMax
  u32 n_threads = 4;       // of the thread pool, 1 to kIoThreadsMax: its concurrent calls
};
// `memory` of at least io_backend_bytes() holds the backend; destroy with io_backend_destroy().
// Automatic tries the ring and its self test, and takes the threads if that fails; `why_not` then
// has the reason in one static sentence.
struct IoBackendHandle {
  IoBackend* backend = nullptr;
  const char* why_not = nullptr;
};
u64 io_backend_bytes();
Result<IoBackendHandle> io_backend_create(const IoConfig& config, std::span<std::byte> memory);
void io_backend_destroy(IoBackend* backend);

// A blocking read over a backend with nothing in flight: reads exactly [offset, offset + buffer) or
// fails. The alignment rules hold.
Result<void> io_read_exact(IoBackend& io, IoFile file, u64 offset, std::span<std::byte> buffer);

}  // namespace tarn
