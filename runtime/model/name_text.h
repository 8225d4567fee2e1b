// A name built from pieces without allocating, in a buffer that holds the longest of ours.
#pragma once

#include <cstring>
#include <string_view>

#include "platform/base/assert.h"
#include "platform/base/types.h"

namespace tarn::model {

// The longest text is a type's name and a tensor's (GgufLimits::kTensorNameBytesMax) in an error.
class NameText {
 public:
  NameText& operator+=(std::string_view piece) {
    TARN_ASSERT(length_ + piece.size() < sizeof text_);
    std::memcpy(text_ + length_, piece.data(), piece.size());
    length_ += piece.size();
    return *this;
  }
  NameText& operator+=(u32 number) {
    char digits[10];
    u64 n = sizeof digits;
    do {
      digits[--n] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this += std::string_view(digits + n, sizeof digits - n);
  }
  std::string_view view() const { return {text_, length_}; }

 private:
  char text_[128];
  u64 length_ = 0;
};

}  // namespace tarn::model
