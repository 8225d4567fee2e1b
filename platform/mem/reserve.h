// The only way the core gets memory from the system: whole reservations, made at start, touched and
// locked as asked, released at the end. It is an interface, because tests fail its n-th call.
//
//   thread       any, but only while the engine is being built or torn down
//   when full    an Error that names the remedy (what to lower, which limit to raise)
#pragma once

#include <span>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

enum class LockMode : u8 { off, attempt, require };

struct ReserveArgs {
  const char* name = "";   // static storage; appears in the error
  u64 bytes = 0;           // > 0; rounded up to whole sectors of 4 KiB
  bool touch = true;       // fault every page in now, so that a shortage shows here and not later
  bool huge_pages = true;  // ask for transparent huge pages where the system offers them
  bool core_dump = false;  // a core dump would carry weights and the customer's documents
  // A GPU's driver pins this memory: no huge pages, and no child process gets it (fork). Before
  // Linux 5.12, a parent that wrote after a fork got a copy of a pinned page, and the GPU kept the
  // old one.
  bool for_device = false;
  LockMode lock = LockMode::off;
};

struct ReserveOutcome {
  std::span<std::byte> bytes;  // zeroed, at least 4 KiB aligned (2 MiB for large ones)
  bool locked = false;         // false with LockMode::attempt where the limit is too low
};

class Reserve {
 public:
  virtual Result<ReserveOutcome> reserve(const ReserveArgs& args) = 0;
  virtual void release(std::span<std::byte> bytes) = 0;  // exactly what reserve() gave

 protected:
  ~Reserve() = default;
};

// mmap, madvise, mlock.
class SystemReserve final : public Reserve {
 public:
  Result<ReserveOutcome> reserve(const ReserveArgs& args) override;
  void release(std::span<std::byte> bytes) override;
};

// Returns how many bytes the system could still give without swapping: MemAvailable, bounded by the
// cgroup's limit (v1 and v2, and those of its parents) and by RLIMIT_AS and RLIMIT_DATA. The base
// of `--budget auto`. 0 where it is not known.
u64 memory_available_bytes();

}  // namespace tarn
