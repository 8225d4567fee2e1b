#include "runtime/text/text_stream.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "runtime/text/unicode.h"

namespace tarn::text {

Result<void> TextStream::reset(std::span<const std::string_view> stops) {
  if (stops.size() > kStopsMax) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "stops",
                 .hint = "at most 16 stop strings are allowed"});
  }
  for (const std::string_view text : stops) {
    if (text.empty() || text.size() > kStopBytesMax) {
      return fail({.status = Status::invalid_request,
                   .reason = Reason::bad_field,
                   .key = "stops",
                   .hint = "a stop string must have 1 to 128 bytes",
                   .figures = {{{"bytes", text.size()}}}});
    }
    if (!text::is_utf8(text)) {
      return fail({.status = Status::invalid_request,
                   .reason = Reason::bad_field,
                   .key = "stops",
                   .hint = "a stop string must be UTF-8: the text it is looked for in is"});
    }
  }
  n_stops_ = static_cast<u32>(stops.size());
  for (u32 i = 0; i < n_stops_; ++i) {
    std::memcpy(stops_[i].data(), stops[i].data(), stops[i].size());
    stop_bytes_[i] = static_cast<u8>(stops[i].size());
  }
  n_held_ = 0;
  stopped_ = false;
  return {};
}

u64 TextStream::longest_match(u64* complete) const {
  const std::string_view held(held_.data(), n_held_);
  u64 longest = 0;
  *complete = 0;
  for (u32 i = 0; i < n_stops_; ++i) {
    const std::string_view text = stop(i);
    if (held.ends_with(text)) *complete = std::max(*complete, text.size());
    for (u64 n = std::min<u64>(text.size(), n_held_); n > longest; --n) {
      if (held.ends_with(text.substr(0, n))) longest = n;
    }
  }
  return longest;
}

u64 TextStream::push(std::string_view bytes, std::span<char> out) {
  if (stopped_) return 0;
  if (n_stops_ == 0) {
    TARN_ASSERT(out.size() >= bytes.size());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return bytes.size();
  }
  TARN_ASSERT(out.size() >= bytes.size() + kStopBytesMax);
  u64 n_out = 0;
  const auto show = [&](u64 n) {
    std::memcpy(out.data() + n_out, held_.data(), n);
    std::memmove(held_.data(), held_.data() + n, n_held_ - n);
    n_out += n;
    n_held_ -= n;
  };
  for (const char c : bytes) {
    held_[n_held_++] = c;
    u64 complete = 0;
    const u64 longest = longest_match(&complete);
    if (complete > 0) {
      show(n_held_ - complete);
      n_held_ = 0;
      stopped_ = true;
      return n_out;
    }
    show(n_held_ - longest);
  }
  return n_out;
}

u64 TextStream::finish(std::span<char> out) {
  const u64 n = stopped_ ? 0 : n_held_;
  std::memcpy(out.data(), held_.data(), n);
  n_held_ = 0;
  return n;
}

}  // namespace tarn::text
