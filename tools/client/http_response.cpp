#include "tools/client/http_response.h"

#include <algorithm>
#include <charconv>

#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

[[noreturn]] void fail(const char* what) {
  throw Failure{kExitIo, std::string("the server's answer is no HTTP/1.1 response: ") + what +
                             ". Is tarnd behind this address?"};
}

// Digits alone, all of the text.
u64 number_of(std::string_view text, int base, const char* what) {
  u64 number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) fail(what);
  return number;
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

void HttpResponse::feed(std::string_view bytes) {
  input_.append(bytes);
  // Each step reads something, ends the response, or needs more bytes.
  for (size_t n_before = ~size_t{0}; !is_complete() && input_.size() != n_before;) {
    n_before = input_.size();
    const State before = state_;
    step();
    if (state_ != before) n_before = ~size_t{0};
  }
  if (is_complete() && !input_.empty()) fail("bytes follow its end");
}

void HttpResponse::end() {
  if (state_ == State::until_end) state_ = State::complete;
  if (!is_complete()) {
    throw Failure{kExitIo,
                  "the server closed the connection in the middle of its answer: its log "
                  "says why"};
  }
}

std::string HttpResponse::header(std::string_view name) const {
  const auto found = std::ranges::find(
      headers_, name, [](const auto& entry) { return std::string_view(entry.first); });
  return found == headers_.end() ? "" : found->second;
}

void HttpResponse::step() {
  std::string line;
  switch (state_) {
    case State::head:
      return read_head();
    case State::length:
      take_bytes();
      if (left_bytes_ == 0) state_ = State::complete;
      return;
    case State::chunk_size:
      if (next_line(line)) read_chunk_size(line);
      return;
    case State::chunk:
      take_bytes();
      if (left_bytes_ == 0) state_ = State::chunk_end;
      return;
    case State::chunk_end:
      if (!next_line(line)) return;
      if (!line.empty()) fail("a chunk is longer than it says");
      state_ = State::chunk_size;
      return;
    case State::trailer:
      if (next_line(line) && line.empty()) state_ = State::complete;
      return;
    case State::until_end:
      body_.append(std::exchange(input_, ""));
      return;
    case State::complete:
      return;
  }
}

void HttpResponse::read_head() {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = input_.find(kEnd);
  if (std::min(end, input_.size()) > kHeadBytesMax) fail("its head is longer than 64 KiB");
  if (end == std::string::npos) return;
  const std::string head = input_.substr(0, end + 2);
  input_.erase(0, end + kEnd.size());
  headers_.clear();
  for (size_t begin = 0; begin < head.size();) {
    const size_t line_end = head.find("\r\n", begin);
    const std::string_view line(head.data() + begin, line_end - begin);
    if (begin == 0) {
      read_status_line(line);
    } else {
      const size_t colon = line.find(':');
      if (colon == 0 || colon == std::string_view::npos) fail("a header field has no name");
      headers_.emplace_back(lowered(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
    }
    begin = line_end + 2;
  }
  choose_body();
}

void HttpResponse::read_status_line(std::string_view line) {
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  if (!line.starts_with(kVersion)) fail("its first line is another");
  line.remove_prefix(kVersion.size());
  status_ = static_cast<u32>(number_of(line.substr(0, 3), 10, "its status is no number"));
  if (status_ < 100 || status_ > 599) fail("its status is out of range");
}

void HttpResponse::choose_body() {
  const std::string coding = lowered(header("transfer-encoding")),
                    length = header("content-length");
  if (status_ < 200) {  // another head follows
    state_ = State::head;
  } else if (status_ == 204 || status_ == 304) {
    state_ = State::complete;
  } else if (!coding.empty()) {
    if (coding != "chunked") fail("its transfer coding is unknown");
    state_ = State::chunk_size;
  } else if (!length.empty()) {
    left_bytes_ = number_of(length, 10, "its length is no number");
    state_ = left_bytes_ > 0 ? State::length : State::complete;
  } else {
    state_ = State::until_end;
  }
}

void HttpResponse::take_bytes() {
  const size_t n = static_cast<size_t>(std::min<u64>(left_bytes_, input_.size()));
  body_.append(input_, 0, n);
  input_.erase(0, n);
  left_bytes_ -= n;
}

void HttpResponse::read_chunk_size(std::string_view line) {
  const std::string_view digits = trimmed(line.substr(0, line.find(';')));
  left_bytes_ = number_of(digits, 16, "the size of a chunk is no number");
  state_ = left_bytes_ > 0 ? State::chunk : State::trailer;
}

bool HttpResponse::next_line(std::string& line) {
  const size_t end = input_.find("\r\n");
  if (std::min(end, input_.size()) > kHeadBytesMax) fail("a line is longer than 64 KiB");
  if (end == std::string::npos) return false;
  line = input_.substr(0, end);
  input_.erase(0, end + 2);
  return true;
}

}  // namespace tarn::tools
