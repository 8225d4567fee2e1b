#include "tools/support/http_text.h"

#include <algorithm>

namespace tarn::tools {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool is_token_char(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kOthers.find(c) != std::string_view::npos;
}
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }
bool is_value_char(char c) { return c == '\t' || (static_cast<u8>(c) >= ' ' && c != '\x7f'); }

}  // namespace

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_token_char);
}

std::string_view without_blanks(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view next_part(std::string_view& rest, std::string_view separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + separator.size()));
  return part;
}

std::string_view first_line(std::string_view& head) {
  if (head.starts_with(kLineEnd)) head.remove_prefix(kLineEnd.size());
  return next_part(head, kLineEnd);
}

std::optional<HeadField> read_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return std::nullopt;
  const HeadField field{line.substr(0, colon), without_blanks(line.substr(colon + 1))};
  if (!std::ranges::all_of(field.value, is_value_char)) return std::nullopt;
  return field;
}

HeadEnd find_head_end(std::string_view bytes) {
  // RFC 9112, 2.2: one empty line before a request is ignored.
  const u64 begin = bytes.starts_with(kLineEnd) ? kLineEnd.size() : 0;
  const std::string_view head = bytes.substr(0, kHeadBytesMax);
  for (u64 i = begin; i < head.size(); ++i) {
    const char c = head[i];
    if (c == '\n' && (i == 0 || head[i - 1] != '\r'))
      return {0, HeadError{400, "a line without CR"}};
    if (c == '\n' && i >= begin + 3 && head[i - 2] == '\n') return {i + 1, {}};
    if (c == '\n' && i == begin + 1) return {0, HeadError{400, "an empty line before the head"}};
    if (i > 0 && head[i - 1] == '\r' && c != '\n' && i > begin) {
      return {0, HeadError{400, "a CR within a line"}};
    }
    if (c != '\r' && c != '\n' && !is_value_char(c)) {
      return {0, HeadError{400, "a control character in the head"}};
    }
  }
  if (bytes.size() >= kHeadBytesMax) return {0, HeadError{431, "the head is too long"}};
  return {};
}

}  // namespace tarn::tools
