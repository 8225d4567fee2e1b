// Server-sent events: the data of each event from a stream's bytes, in any cut. Comments, which
// keep a connection alive, and fields other than `data` are dropped.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::tools {

class EventReader {
 public:
  static constexpr u64 kEventBytesMax = 16 * 1024 * 1024;

  // Throws Failure if an event is longer than kEventBytesMax.
  void feed(std::string_view bytes);
  // Returns the data of the next whole event; lines of one event are joined by line breaks.
  std::optional<std::string> next();

 private:
  std::string input_;  // not read yet
  std::string data_;   // of the event that is being read
  bool has_data_ = false;
};

}  // namespace tarn::tools
