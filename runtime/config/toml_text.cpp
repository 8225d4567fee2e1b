#include "runtime/config/toml_text.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/shown_text.h"

namespace tarn {
namespace {

constexpr u32 kDotsMax = 16;

u64 line_of(std::string_view text, u64 at) {
  const std::string_view before = text.substr(0, at);
  return static_cast<u64>(std::count(before.begin(), before.end(), '\n')) + 1;
}

// With '?' for each character beyond ASCII, and for each byte that belongs to none.
std::string_view to_ascii(std::string_view text, std::span<char> out) {
  TARN_ASSERT(text.size() <= out.size());
  u64 n = 0;
  while (!text.empty()) {
    const u32 n_bytes = utf8_bytes(text);
    out[n++] = n_bytes == 1 ? text[0] : '?';
    text.remove_prefix(n_bytes > 0 ? n_bytes : 1);
  }
  return {out.data(), n};
}

// The text behind a string that begins with `text`; a string of one line ends at the latest with
// it.
std::string_view behind_string(std::string_view text) {
  const char quote = text[0];
  const bool has_escapes = quote == '"';
  const auto is_quote = [&](u64 at) { return at < text.size() && text[at] == quote; };
  const bool is_multi_line = is_quote(1) && is_quote(2);
  u64 at = is_multi_line ? 3 : 1;
  for (; at < text.size(); ++at) {
    if (has_escapes && text[at] == '\\' && at + 1 < text.size()) {
      at += text[at + 1] == '\n' && !is_multi_line ? u64{0} : u64{1};
    } else if (text[at] == '\n' && !is_multi_line) {
      return text.substr(at);
    } else if (text[at] == quote && !is_multi_line) {
      return text.substr(at + 1);
    } else if (text[at] == quote && is_quote(at + 1) && is_quote(at + 2)) {
      // Up to two quotes in front of the three that end it belong to it.
      const u64 n_more = is_quote(at + 3) ? is_quote(at + 4) ? 2 : 1 : 0;
      return text.substr(at + 3 + n_more);
    }
  }
  return {};
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<u8>(c) < 0x80; });
}

Unexpected refused(const char* hint, std::string_view whole, std::string_view rest) {
  const u64 at = whole.size() - rest.size();
  return fail({.status = Status::invalid_config,
               .reason = Reason::bad_setting,
               .hint = hint,
               .figures = {{{"line", line_of(whole, at)}, {"byte", at}}}});
}

// Looks at each string, and at the dots of each key. toml++ makes a table of a dot, limits brackets
// alone, and destroys tables by recursion. A key ends at the latest at one of kEnds.
Result<void> check(std::string_view whole) {
  constexpr std::string_view kEnds = "=,[]{}\n";
  u32 n_dots = 0;
  for (std::string_view text = whole; !text.empty();) {
    const char c = text[0];
    if (c == '"' || c == '\'') {
      const std::string_view behind = behind_string(text);
      if (!is_ascii(text.substr(0, text.size() - behind.size()))) {
        return refused(
            "a text has a letter beyond ASCII: comments may have one, and texts of [daemon] as "
            "\"\\u00e9\"",
            whole, text);
      }
      text = behind;
      continue;
    }
    if (c == '#') {
      text.remove_prefix(std::min(text.find('\n'), text.size()));
      continue;
    }
    if (kEnds.find(c) != std::string_view::npos) n_dots = 0;
    if (c == '.' && ++n_dots > kDotsMax) {
      return refused("a key has more dots than any known key", whole, text);
    }
    text.remove_prefix(1);
  }
  return {};
}

}  // namespace

Result<std::string_view> checked_toml(std::string_view text, std::span<char> out) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (const u64 at = text.find('\0'); at != std::string_view::npos) {
    return refused("the configuration has a zero byte: save it as UTF-8 text", text,
                   text.substr(at));
  }
  TARN_CHECK(check(text));
  return to_ascii(text, out);
}

}  // namespace tarn
