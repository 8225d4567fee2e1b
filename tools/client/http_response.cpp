#include "tools/client/http_response.h"

#include <algorithm>
#include <charconv>

#include "tools/support/exit_code.h"
#include "tools/support/http_text.h"

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

}  // namespace

void HttpResponse::feed(std::string_view bytes) {
  input_.append(bytes);
  while (state_ == State::head) {  // more than one where the first is an interim one
    const HeadEnd end = find_head_end(input_);
    if (end.error) fail(end.error->sentence);
    if (end.n_bytes == 0) return;
    read_head(std::string_view(input_).substr(0, end.n_bytes));
    input_.erase(0, end.n_bytes);
  }
  take_body_bytes();
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
  const auto found = std::ranges::find_if(
      headers_, [&](const auto& field) { return equals_ignoring_case(field.first, name); });
  return found == headers_.end() ? "" : found->second;
}

void HttpResponse::take_body_bytes() {
  u64 n = input_.size();
  if (state_ == State::chunks) {
    n = chunks_.take(input_, body_, ~u64{0});
    if (chunks_.state() == ChunkedBody::State::bad) fail("its chunks have another form");
    if (chunks_.state() == ChunkedBody::State::done) state_ = State::complete;
  } else if (state_ == State::length) {
    n = std::min(left_bytes_, n);
    body_.append(input_, 0, n);
    left_bytes_ -= n;
    if (left_bytes_ == 0) state_ = State::complete;
  } else if (state_ == State::until_end) {
    body_.append(input_);
  } else {
    return;
  }
  input_.erase(0, n);
}

void HttpResponse::read_head(std::string_view head) {
  read_status_line(first_line(head));
  headers_.clear();
  for (auto line = next_part(head, "\r\n"); !line.empty(); line = next_part(head, "\r\n")) {
    const auto field = read_field(line);
    if (!field) fail("bad header field");
    headers_.emplace_back(field->name, field->value);
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
  const std::string coding = header("transfer-encoding"), length = header("content-length");
  if (status_ < 200) {  // another head follows
    state_ = State::head;
  } else if (status_ == 204 || status_ == 304) {
    state_ = State::complete;
  } else if (!coding.empty()) {
    if (!equals_ignoring_case(coding, "chunked")) fail("its transfer coding is unknown");
    state_ = State::chunks;
  } else if (!length.empty()) {
    left_bytes_ = number_of(length, 10, "its length is no number");
    state_ = left_bytes_ > 0 ? State::length : State::complete;
  } else {
    state_ = State::until_end;
  }
}

}  // namespace tarn::tools
