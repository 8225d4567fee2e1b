#include "platform/base/result.h"

#include <algorithm>
#include <iterator>

#include "platform/base/shown_text.h"

namespace tarn {
namespace {

// Appends as much of `text` as fits, in whole characters, and keeps the terminator; returns the new
// length.
u64 append(char* out, u64 length, u64 out_bytes, std::string_view text) {
  const auto continues = [&](u64 at) { return (static_cast<u8>(text[at]) & 0xC0) == 0x80; };
  u64 n = out_bytes - 1 - length;
  if (n < text.size()) {
    while (n > 0 && continues(n)) --n;
    text = text.substr(0, n);
  }
  std::copy(text.begin(), text.end(), out + length);
  length += text.size();
  out[length] = '\0';
  return length;
}

u64 append_number(char* out, u64 length, u64 out_bytes, u64 value) {
  char digits[20];
  u32 n_digits = 0;
  do {
    digits[n_digits++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (n_digits > 0) {
    length = append(out, length, out_bytes, std::string_view(&digits[--n_digits], 1));
  }
  return length;
}

// Sizes are written as a configuration gives them: "256MiB", where that is exact.
u64 append_figure(char* out, u64 length, u64 out_bytes, const Figure& figure) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  u64 value = figure.value, unit = 0;
  if (std::string_view(figure.name).ends_with("_bytes") && value > 0) {
    while (value % 1024 == 0 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  }
  length = append_number(out, length, out_bytes, value);
  return append(out, length, out_bytes, kUnits[unit]);
}

u64 append_hint(char* out, u64 length, u64 out_bytes, const Error& error) {
  const std::string_view hint = error.hint;
  for (u64 i = 0; i < hint.size(); ++i) {
    const bool is_figure = hint[i] == '{' && i + 2 < hint.size() && hint[i + 2] == '}';
    const u64 idx = is_figure ? static_cast<u64>(hint[i + 1] - '0') : error.figures.size();
    if (idx >= error.figures.size()) {
      length = append(out, length, out_bytes, hint.substr(i, 1));
      continue;
    }
    length = append_number(out, length, out_bytes, error.figures[idx].value);
    i += 2;
  }
  return length;
}

}  // namespace

const char* status_name(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::invalid_config:
      return "invalid_config";
    case Status::invalid_model:
      return "invalid_model";
    case Status::over_budget:
      return "over_budget";
    case Status::device_lost:
      return "device_lost";
    case Status::io_failed:
      return "io_failed";
    case Status::internal:
      return "internal";
    case Status::invalid_request:
      return "invalid_request";
    case Status::would_block:
      return "would_block";
    case Status::cancelled:
      return "cancelled";
    case Status::unsupported:
      return "unsupported";
    case Status::not_finite:
      return "not_finite";
    case Status::not_found:
      return "not_found";
  }
  return "unknown";
}

Detail::Detail(std::string_view text) : Detail({text}) {}

Detail::Detail(std::initializer_list<std::string_view> parts) {
  u64 length = 0;
  for (const std::string_view part : parts)
    length = append_shown(text_.data(), length, text_.size(), part);
}

u64 format_error(const Error& error, char* out, u64 out_bytes) {
  if (out_bytes == 0) return 0;
  out[0] = '\0';
  u64 length = append_hint(out, 0, out_bytes, error);
  if (!error.detail.empty()) {
    length = append(out, length, out_bytes, ": ");
    length = append(out, length, out_bytes, error.detail.c_str());
  }
  const char* separator = " (";
  for (const Figure& figure : error.figures) {
    if (figure.name == nullptr) continue;
    length = append(out, length, out_bytes, separator);
    length = append(out, length, out_bytes, figure.name);
    length = append(out, length, out_bytes, " ");
    length = append_figure(out, length, out_bytes, figure);
    separator = ", ";
  }
  if (separator[0] == ',') length = append(out, length, out_bytes, ")");
  return length;
}

}  // namespace tarn
