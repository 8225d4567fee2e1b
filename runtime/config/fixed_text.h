// A short text that is built without allocating: an error's detail, a region's formula. A text that
// does not fit is cut; it is always terminated.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/types.h"

namespace tarn {

template <u64 n_bytes>
class FixedText {
 public:
  FixedText& operator<<(std::string_view text) {
    for (const char c : text) {
      if (length_ + 1 < n_bytes) text_[length_++] = c;
    }
    return *this;
  }
  FixedText& operator<<(u64 value) {
    std::array<char, 20> digits{};
    u64 begin = digits.size();
    do {
      digits[--begin] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    return *this << std::string_view(&digits[begin], digits.size() - begin);
  }
  std::string_view view() const { return {text_.data(), length_}; }
  const std::array<char, n_bytes>& array() const { return text_; }

 private:
  std::array<char, n_bytes> text_{};
  u64 length_ = 0;
};

}  // namespace tarn
