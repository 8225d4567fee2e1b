// Reads a body in chunks (RFC 9112, 7.1): a state machine over any split of its bytes. Extensions
// and trailers are skipped, within kLineBytesMax and kTrailerBytesMax.
#pragma once

#include <string>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::tools {

class ChunkedBody {
 public:
  enum class State : u8 { more, done, bad, too_long };

  // Appends the data to `body`, up to bytes_max in all. Returns how many bytes were taken; after
  // `more` it is all of them.
  u64 take(std::string_view bytes, std::string& body, u64 bytes_max);
  State state() const { return state_; }

 private:
  static constexpr u64 kLineBytesMax = 256, kTrailerBytesMax = 4096;
  enum class Part : u8 { line, data, data_end, trailer };

  void take_line_byte(char c);
  void end_line();

  State state_ = State::more;
  Part part_ = Part::line;
  std::string line_;
  u64 n_left_ = 0;  // of the chunk
  u64 n_trailer_ = 0;
};

}  // namespace tarn::tools
