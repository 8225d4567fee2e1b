// Takes an input apart into numbers and choices, front to back; an input that has ended gives
// zeros.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::test {

// A finding, whatever the build: libFuzzer keeps the input.
inline void require(bool condition) {
  if (!condition) __builtin_trap();
}

class FuzzInput {
 public:
  FuzzInput(const u8* data, u64 n_bytes) : rest_(data, n_bytes) {}
  bool empty() const { return rest_.empty(); }
  template <class T>
  T number() {
    T value{};
    const std::span<const u8> bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  u32 below(u32 n) { return number<u32>() % n; }
  std::span<const u8> take(u64 n_bytes) {
    const std::span<const u8> bytes = rest_.first(n_bytes < rest_.size() ? n_bytes : rest_.size());
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  std::string_view text(u64 n_bytes) {
    const std::span<const u8> bytes = take(n_bytes);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const u8> rest_;
};

}  // namespace tarn::test
