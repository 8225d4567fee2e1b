// Reads a file from front to back through one window of sectors, by direct I/O and without mapping
// the file. It knows nothing of GGUF, except that a file that ends too early is invalid.
//
//   window   sector-aligned, a multiple of the sector; borrowed for the cursor's life
//   thread   any, one at a time; nothing else may be in flight on the backend
#pragma once

#include <cstring>
#include <span>

#include "platform/base/result.h"
#include "platform/io/io_backend.h"

namespace tarn::model {

// Reverses a number of n_bytes, which lie in the lower bytes.
constexpr u64 reversed_bytes(u64 bits, u64 n_bytes) {
  return __builtin_bswap64(bits) >> (64 - 8 * n_bytes);
}

class FileCursor {
 public:
  struct Range {
    IoBackend* io = nullptr;
    IoFile file{};
    std::span<std::byte> window{};
    u64 begin = 0;
    u64 end = 0;            // nothing at or beyond it is read as content
    bool reverses = false;  // numbers lie in the other byte order
  };
  explicit FileCursor(const Range& range);

  u64 offset() const { return offset_; }
  u64 bytes_left() const { return range_.end - offset_; }
  // The longest piece that take() can return at any offset.
  u64 take_bytes_max() const { return range_.window.size() - kSectorBytes; }

  // Returns the next n_bytes as one piece, valid until the next call; n_bytes <= take_bytes_max().
  Result<const std::byte*> take(u64 n_bytes);
  Result<void> skip(u64 n_bytes);  // reads nothing
  void reverse_numbers() { range_.reverses = true; }
  template <class T>
  Result<T> number() {
    TARN_TRY(const std::byte* bytes, take(sizeof(T)));
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return range_.reverses ? static_cast<T>(reversed_bytes(value, sizeof value)) : value;
  }

 private:
  Result<void> refill();
  Error ended_early(u64 n_bytes) const;

  Range range_{};
  u64 offset_ = 0;
  u64 window_begin_ = 0;  // file offset of the window's first byte
  u64 window_end_ = 0;    // file offset after the last valid byte
};

// The error for a read's unexpected result (IoCompletion::result).
Error read_error(i64 result, u64 offset);

}  // namespace tarn::model
