// Reads one HTTP/1.1 response from bytes as they arrive: status, header, and the body by its
// length, by chunks, or until the connection ends. The bytes are a server's, and not trusted: a
// head is limited, numbers are digits alone, and what is malformed throws Failure. Knows no socket.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

class HttpResponse {
 public:
  static constexpr u64 kHeadBytesMax = 64 * 1024;

  // Takes the next bytes of the connection. Throws Failure.
  void feed(std::string_view bytes);
  // The connection has ended. Throws Failure if the response has not.
  void end();

  bool has_head() const { return state_ != State::head; }
  bool is_complete() const { return state_ == State::complete; }
  u32 status() const { return status_; }
  // The value of a header field, or "". `name` in lower case.
  std::string header(std::string_view name) const;
  // Returns the bytes of the body that came since the last call.
  std::string take_body() { return std::exchange(body_, ""); }

 private:
  enum class State : u8 {
    head,
    length,
    chunk_size,
    chunk,
    chunk_end,
    trailer,
    until_end,
    complete
  };

  void read_head();
  void read_status_line(std::string_view line);
  void choose_body();
  void step();
  void take_bytes();
  void read_chunk_size(std::string_view line);
  // The next line of the input, without its line break; false if it is not whole yet.
  bool next_line(std::string& line);

  State state_ = State::head;
  std::string input_;  // not read yet
  std::string body_;
  std::vector<std::pair<std::string, std::string>> headers_;  // names in lower case
  u32 status_ = 0;
  u64 left_bytes_ = 0;  // of the body, or of the chunk
};

}  // namespace tarn::tools
