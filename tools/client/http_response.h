// Reads one HTTP/1.1 response from bytes as they arrive: status, header, and the body by its
// length, by chunks, or until the connection ends. The bytes are a server's, and not trusted: a
// head is limited, numbers are digits alone, and what is malformed throws Failure. Knows no socket.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/support/chunked_body.h"

namespace tarn::tools {

class HttpResponse {
 public:
  // Takes the next bytes of the connection. Throws Failure.
  void feed(std::string_view bytes);
  // The connection has ended. Throws Failure if the response has not.
  void end();

  bool has_head() const { return state_ != State::head; }
  bool is_complete() const { return state_ == State::complete; }
  u32 status() const { return status_; }
  // The value of a header field, or "".
  std::string header(std::string_view name) const;
  // Returns the bytes of the body that came since the last call.
  std::string take_body() { return std::exchange(body_, ""); }

 private:
  enum class State : u8 { head, length, chunks, until_end, complete };

  void read_head(std::string_view head);
  void read_status_line(std::string_view line);
  void choose_body();
  void take_body_bytes();

  State state_ = State::head;
  std::string input_;  // not read yet
  std::string body_;
  std::vector<std::pair<std::string, std::string>> headers_;
  u32 status_ = 0;
  u64 left_bytes_ = 0;  // of a body with a length
  ChunkedBody chunks_;
};

}  // namespace tarn::tools
