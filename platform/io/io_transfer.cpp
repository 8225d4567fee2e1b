#include "platform/io/io_transfer.h"

#include <errno.h>

#include <algorithm>

#include "platform/base/checked.h"

namespace tarn {

std::optional<i64> IoTransfer::without_a_call() const {
  if (request.op == IoOp::sync_data) return std::nullopt;
  constexpr u64 kOffsetMax = ~u64{0} >> 1;  // off_t is signed
  if (!(Checked(request.offset) + Checked(request.buffer.size())).at_most(kOffsetMax)) {
    return -EINVAL;
  }
  // Some file systems accept misaligned direct requests (tmpfs). We refuse them everywhere, so that
  // a mistake shows before it reaches the customer's disk.
  const u64 address = reinterpret_cast<std::uintptr_t>(request.buffer.data());
  if (direct && (address | request.offset | request.buffer.size()) % kSectorBytes != 0) {
    return -EINVAL;
  }
  return request.buffer.empty() ? std::optional<i64>(0) : std::nullopt;
}

u64 IoTransfer::next_bytes() const {
  return std::min(request.buffer.size() - done_bytes, kCallBytesMax);
}

std::optional<i64> IoTransfer::take(i64 result) {
  if (result == -EAGAIN || result == -EINTR) {
    return ++n_retries > kRetriesMax ? std::optional<i64>(result) : std::nullopt;
  }
  if (result < 0 || request.op == IoOp::sync_data) return result;
  const u64 moved_bytes = static_cast<u64>(result);
  if (moved_bytes > next_bytes()) return -EIO;
  if (moved_bytes == 0) {
    return request.op == IoOp::read ? static_cast<i64>(done_bytes) : -EIO;
  }
  done_bytes += moved_bytes;
  n_retries = 0;
  const bool at_end = done_bytes == request.buffer.size();
  // A direct read returns part of a sector only at the end of the file, and cannot continue there.
  const bool cut_sector = direct && done_bytes % kSectorBytes != 0;
  if (cut_sector && !at_end && request.op == IoOp::write) return -EIO;
  if (at_end || cut_sector) return static_cast<i64>(done_bytes);
  return std::nullopt;
}

}  // namespace tarn
