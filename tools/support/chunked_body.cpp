#include "tools/support/chunked_body.h"

#include <algorithm>
#include <charconv>

namespace tarn::tools {

u64 ChunkedBody::take(std::string_view bytes, std::string& body, u64 bytes_max) {
  u64 n = 0;
  while (n < bytes.size() && state_ == State::more) {
    if (part_ != Part::data) {
      take_line_byte(bytes[n++]);
      continue;
    }
    const u64 n_now = std::min<u64>(n_left_, bytes.size() - n);
    if (n_now > bytes_max - std::min<u64>(body.size(), bytes_max)) {
      state_ = State::too_long;
      break;
    }
    body.append(bytes.substr(n, n_now));
    n += n_now;
    n_left_ -= n_now;
    if (n_left_ == 0) part_ = Part::data_end;
  }
  return n;
}

void ChunkedBody::take_line_byte(char c) {
  const bool after_cr = !line_.empty() && line_.back() == '\r';
  if (c == '\n' && after_cr) {
    line_.pop_back();
    end_line();
    line_.clear();
    return;
  }
  const bool is_bad = after_cr || c == '\n' || (static_cast<u8>(c) < ' ' && c != '\r' && c != '\t');
  if (is_bad || line_.size() >= kLineBytesMax) {
    state_ = State::bad;
    return;
  }
  line_ += c;
  if (part_ == Part::trailer && ++n_trailer_ > kTrailerBytesMax) state_ = State::bad;
}

void ChunkedBody::end_line() {
  if (part_ == Part::data_end) {
    if (!line_.empty()) state_ = State::bad;
    part_ = Part::line;
    return;
  }
  if (part_ == Part::trailer) {
    if (line_.empty()) state_ = State::done;
    return;
  }
  constexpr int kHexadecimal = 16;
  constexpr std::ptrdiff_t kDigitsMax = 15;
  const char* const begin = line_.data();
  const auto read = std::from_chars(begin, begin + line_.size(), n_left_, kHexadecimal);
  const char* const end = begin + line_.size();
  const bool ends = read.ptr == end || *read.ptr == ';' || *read.ptr == ' ' || *read.ptr == '\t';
  if (read.ec != std::errc{} || read.ptr - begin > kDigitsMax || !ends) {
    state_ = State::bad;
    return;
  }
  part_ = n_left_ == 0 ? Part::trailer : Part::data;
}

}  // namespace tarn::tools
