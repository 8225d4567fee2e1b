#include "platform/mem/reserve.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/mem/available.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14; the number is part of its ABI
#define MADV_POPULATE_WRITE 23
#endif

namespace tarn {
namespace {

constexpr u64 kSmallPageBytes = 4 * kKiB;
constexpr u64 kHugePageBytes = 2 * kMiB;
// Bytes touched between two checks of the available memory: large enough that the checks cost
// nothing, small enough to notice another process that grows before the OOM killer acts.
constexpr u64 kTouchSliceBytes = 256 * kMiB;

Unexpected out_of_memory(const ReserveArgs& args, int error) {
  return fail({.status = Status::over_budget,
               .hint =
                   "the system refused {0} bytes of memory: lower the budget, -c or the model's "
                   "size, or raise RLIMIT_AS (ulimit -v)",
               .detail = Detail(args.name),
               .figures = {{{"bytes", args.bytes}, {"errno", static_cast<u64>(error)}}}});
}

Unexpected not_available(const ReserveArgs& args, u64 missing_bytes, u64 available_bytes) {
  return fail({.status = Status::over_budget,
               .hint =
                   "not enough free memory, {1} bytes are still needed and {2} available: lower "
                   "the budget, -c or the model's size, stop other programs, or raise the cgroup's "
                   "limit",
               .detail = Detail(args.name),
               .figures = {{{"bytes", args.bytes},
                            {"still_needed", missing_bytes},
                            {"available", available_bytes}}}});
}

// `bytes` whole sectors at an address that is aligned to `alignment`; MAP_FAILED as mmap has it.
// The kernel promises 4 KiB only, so an aligned piece is cut out of a larger mapping.
void* map_aligned(u64 bytes, u64 alignment, int flags) {
  const auto padded = (Checked(bytes) + Checked(alignment - kSmallPageBytes)).get();
  if (!padded) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  void* mapped = mmap(nullptr, *padded, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapped == MAP_FAILED || *padded == bytes) return mapped;
  std::byte* begin = static_cast<std::byte*>(mapped);
  const u64 front = align_up(reinterpret_cast<std::uintptr_t>(begin), alignment) -
                    reinterpret_cast<std::uintptr_t>(begin);
  const u64 back = *padded - bytes - front;
  if (front > 0) munmap(begin, front);
  if (back > 0) munmap(begin + front + bytes, back);
  return begin + front;
}

void write_every_page(std::span<std::byte> bytes) {
  volatile std::byte* page = bytes.data();
  for (u64 offset = 0; offset < bytes.size(); offset += kSmallPageBytes)
    page[offset] = std::byte{0};
}

// With overcommit, touching a page that the system cannot provide wakes the OOM killer. So
// available memory is checked before every slice. Populating answers an error where the kernel
// reports one.
Result<void> touch_all(const ReserveArgs& args, std::span<std::byte> bytes) {
  for (u64 offset = 0; offset < bytes.size(); offset += kTouchSliceBytes) {
    const u64 available = pages_available_under("");
    if (available < bytes.size() - offset) {
      return not_available(args, bytes.size() - offset, available);
    }
    const auto slice = bytes.subspan(offset, std::min(kTouchSliceBytes, bytes.size() - offset));
    if (madvise(slice.data(), slice.size(), MADV_POPULATE_WRITE) == 0) continue;
    if (errno != EINVAL) return out_of_memory(args, errno);
    write_every_page(slice);  // a kernel before 5.14
  }
  return {};
}

// Pages that are not touched are locked at their first use.
Result<bool> lock_all(const ReserveArgs& args, std::span<std::byte> bytes) {
  if (args.lock == LockMode::off) return false;
  const unsigned flags = args.touch ? 0u : static_cast<unsigned>(MLOCK_ONFAULT);
  if (mlock2(bytes.data(), bytes.size(), flags) == 0) return true;
  const int error = errno;
  munlock(bytes.data(), bytes.size());  // a failed mlock may leave the range marked
  if (args.lock == LockMode::attempt) return false;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return fail({.status = Status::over_budget,
               .hint = "{0} bytes of memory cannot be locked with RLIMIT_MEMLOCK at {1}: raise it "
                       "(ulimit -l, or LimitMEMLOCK= in the unit), or set memory.lock "
                       "(--lock) to \"try\" or \"off\"",
               .detail = Detail(args.name),
               .figures = {{{"bytes", bytes.size()},
                            {"RLIMIT_MEMLOCK", limit.rlim_cur},
                            {"errno", static_cast<u64>(error)}}}});
}

Result<bool> prepare(const ReserveArgs& args, std::span<std::byte> bytes) {
  // Before any page exists: a host may fork on another thread at any time.
  if (args.for_device && madvise(bytes.data(), bytes.size(), MADV_DONTFORK) != 0) {
    return out_of_memory(args, errno);
  }
  // These are hints: a system without them is slower or writes larger dumps.
  if (args.huge_pages && !args.for_device && bytes.size() >= kHugePageBytes) {
    static_cast<void>(madvise(bytes.data(), bytes.size(), MADV_HUGEPAGE));
  }
  if (!args.core_dump) static_cast<void>(madvise(bytes.data(), bytes.size(), MADV_DONTDUMP));
  if (args.touch) TARN_CHECK(touch_all(args, bytes));
  return lock_all(args, bytes);
}

}  // namespace

Result<ReserveOutcome> SystemReserve::reserve(const ReserveArgs& args) {
  TARN_ASSERT(args.bytes > 0);
  const auto rounded = Checked(args.bytes).aligned_up(kSmallPageBytes).get();
  if (!rounded) return out_of_memory(args, ENOMEM);
  const u64 alignment = *rounded >= kHugePageBytes ? kHugePageBytes : kSmallPageBytes;
  // Untouched memory is address space only: it must not count against the commit limit before its
  // use.
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (args.touch ? 0 : MAP_NORESERVE);
  void* mapped = map_aligned(*rounded, alignment, flags);
  if (mapped == MAP_FAILED) return out_of_memory(args, errno);

  const std::span<std::byte> bytes(static_cast<std::byte*>(mapped), *rounded);
  const auto locked = prepare(args, bytes);
  if (!locked) {
    release(bytes);
    return fail(locked.error());
  }
  return ReserveOutcome{.bytes = bytes, .locked = *locked};
}

void SystemReserve::release(std::span<std::byte> bytes) {
  TARN_ASSERT(!bytes.empty());
  const int result = munmap(bytes.data(), bytes.size());
  TARN_ASSERT(result == 0);
}

}  // namespace tarn
