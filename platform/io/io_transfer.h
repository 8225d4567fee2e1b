// One request in flight, and the effect of the system's answers on it. A short read continues where
// it stopped, -EAGAIN and -EINTR are retried a bounded number of times, anything else ends it. Pure
// arithmetic, shared by both backends, because no test can make a real kernel give all these
// answers.
//
//   invariant   done_bytes <= request.buffer.size(); until the end of the transfer
//               done_bytes % kSectorBytes == 0 for direct files
#pragma once

#include <optional>

#include "platform/io/io_backend.h"

namespace tarn {

struct IoTransfer {
  // Tries without progress; large direct reads do see -EAGAIN in their completion (liburing #766).
  static constexpr u32 kRetriesMax = 100;
  // Bytes of one call at most: Linux moves at most 2 GiB less a page, and io_uring counts in u32.
  static constexpr u64 kCallBytesMax = kGiB;

  IoRequest request{};
  i32 fd = -1;
  bool direct = false;
  u64 done_bytes = 0;
  u32 n_retries = 0;

  // The result of a request that needs no system call: an empty or an invalid one.
  std::optional<i64> without_a_call() const;

  // The next call's place.
  std::byte* next_data() const { return request.buffer.data() + done_bytes; }
  u64 next_offset() const { return request.offset + done_bytes; }
  u64 next_bytes() const;

  // Takes a call's result (bytes, or -errno). Returns the request's result if it has ended; none:
  // call again.
  std::optional<i64> take(i64 result);
};

}  // namespace tarn
