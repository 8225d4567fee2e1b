#include "runtime/model/file_cursor.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::model {
namespace {
// A timeout only repeats the loop: the buffer belongs to the backend until the completion.
constexpr u64 kWaitNs = 1'000'000'000;
}  // namespace

Error read_error(i64 result, u64 offset) {
  if (result < 0) {
    return {.status = Status::io_failed,
            .hint = "reading the model file failed; check the disk and the system's log",
            .figures = {{{"errno", static_cast<u64>(-result)}, {"offset", offset}}}};
  }
  return {
      .status = Status::io_failed,
      .hint =
          "the model file became shorter while it was read; do not write to it while it is in use",
      .figures = {{{"offset", offset}, {"bytes", static_cast<u64>(result)}}}};
}

FileCursor::FileCursor(const Range& range)
    : range_(range), offset_(range.begin), window_begin_(range.begin), window_end_(range.begin) {
  TARN_ASSERT(range.window.size() % kSectorBytes == 0 && range.window.size() >= 2 * kSectorBytes);
  TARN_ASSERT(range.begin <= range.end);
}

Error FileCursor::ended_early(u64 n_bytes) const {
  return {
      .status = Status::invalid_model,
      .hint = "the file ends too early; it was cut off or damaged, get it again",
      .figures = {{{"offset", offset_}, {"bytes_wanted", n_bytes}, {"bytes_left", bytes_left()}}}};
}

Result<const std::byte*> FileCursor::take(u64 n_bytes) {
  TARN_ASSERT(n_bytes <= take_bytes_max());
  if (n_bytes > bytes_left()) return fail(ended_early(n_bytes));
  if (n_bytes == 0) return range_.window.data();
  if (offset_ < window_begin_ || offset_ + n_bytes > window_end_) {
    TARN_CHECK(refill());
  }
  const std::byte* piece = range_.window.data() + (offset_ - window_begin_);
  offset_ += n_bytes;
  return piece;
}

Result<void> FileCursor::skip(u64 n_bytes) {
  if (n_bytes > bytes_left()) return fail(ended_early(n_bytes));
  offset_ += n_bytes;
  return {};
}

// Moves the window so that it begins with the sector of offset_.
Result<void> FileCursor::refill() {
  const u64 begin = offset_ / kSectorBytes * kSectorBytes;
  const u64 n_valid = std::min<u64>(range_.window.size(), range_.end - begin);
  const u64 n_read = std::min<u64>(range_.window.size(), align_up(n_valid, kSectorBytes));
  window_end_ = window_begin_;  // nothing is valid if the read fails
  IoBackend& io = *range_.io;
  if (!io.submit({.op = IoOp::read,
                  .file = range_.file,
                  .offset = begin,
                  .buffer = range_.window.first(n_read)})) {
    return fail({.status = Status::io_failed,
                 .hint = "the I/O backend accepted no request; it is in use elsewhere or too small",
                 .figures = {{{"in_flight_max", io.in_flight_max()}}}});
  }
  IoCompletion completion{};
  while (io.reap({&completion, 1}, 1, kWaitNs) == 0) {
  }
  if (completion.result < 0 || static_cast<u64>(completion.result) < n_valid) {
    return fail(read_error(completion.result, begin));
  }
  window_begin_ = begin;
  window_end_ = begin + n_valid;
  return {};
}

}  // namespace tarn::model
