// How Python prints values: str(), repr(), json.dumps().
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "runtime/chat/characters.h"
#include "runtime/chat/core.h"

namespace tarn::chat {
namespace {

// Python's repr() of a finite number: the shortest digits that give it, with an exponent outside of
// 1e-4 to 1e16.
bool put_real(Machine& m, f64 value, bool is_json) {
  if (std::isnan(value)) return m.put(is_json ? "NaN" : "nan");
  if (std::isinf(value)) {
    return m.put(std::string_view(is_json ? "-Infinity" : "-inf").substr(value < 0 ? 0 : 1));
  }
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<u64>(end.ptr - buffer.data()));
  const u64 e = text.find('e');
  i32 power = 0;
  const std::string_view digits_of_power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(digits_of_power.data(), digits_of_power.data() + digits_of_power.size(), power);
  if (power < -4 || power >= 16) {
    std::string_view mantissa = text.substr(0, e);
    if (!m.put(mantissa) || !m.put(power < 0 ? "e-" : "e+")) return false;
    const i32 size = std::abs(power);
    return (size >= 10 || m.put("0")) && put_integer(m, size);
  }
  const bool is_negative = text[0] == '-';
  std::array<char, 24> digits{};  // without the point
  u64 n = 0;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits[n++] = c;
  }
  const std::string_view all(digits.data(), n);
  if (is_negative && !m.put("-")) return false;
  if (power < 0) {
    return m.put("0.") && m.put(std::string_view("0000").substr(0, static_cast<u64>(-power - 1))) &&
           m.put(all);
  }
  const u64 before = static_cast<u64>(power) + 1;
  if (!m.put(all.substr(0, std::min(before, n)))) return false;
  for (u64 i = n; i < before; ++i) {
    if (!m.put("0")) return false;
  }
  return m.put(".") && m.put(before < n ? all.substr(before) : "0");
}

bool put_hex(Machine& m, std::string_view prefix, u32 value, u32 n_digits) {
  std::array<char, 10> out{};
  u64 n = prefix.copy(out.data(), 2);
  for (u32 i = n_digits; i > 0; --i) out[n++] = "0123456789abcdef"[(value >> (4 * (i - 1))) & 0xF];
  return m.put({out.data(), n});
}

// A part of a text as it is.
bool put_part(Machine& m, const Value& text, u64 begin, u64 n) {
  return n == 0 || m.put(part_of(text, begin, n));
}

bool put_text_repr(Machine& m, const Value& value) {
  const std::string_view text = value.text();
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  const std::string_view quoted(&quote, 1);
  if (!m.put(quoted)) return false;
  u64 done = 0;  // up to here it is written
  for (u64 at = 0; at < text.size();) {
    const text::CodePoint c = code_point(text, at);
    const bool is_special = c.value == static_cast<u8>(quote) || c.value == '\\';
    if (is_special || !text::is_python_printable(c.value)) {
      if (!put_part(m, value, done, at - done)) return false;
      bool is_written = false;
      if (is_special) {
        is_written = m.put("\\") && put_part(m, value, at, 1);
      } else if (c.value == '\n' || c.value == '\r' || c.value == '\t') {
        is_written = m.put(c.value == '\n' ? "\\n" : c.value == '\r' ? "\\r" : "\\t");
      } else if (c.value < 0x100) {
        is_written = put_hex(m, "\\x", c.value, 2);
      } else if (c.value < 0x10000) {
        is_written = put_hex(m, "\\u", c.value, 4);
      } else {
        is_written = put_hex(m, "\\U", c.value, 8);
      }
      if (!is_written) return false;
      done = at + c.n_bytes;
    }
    at += c.n_bytes;
  }
  m.work(u64{8} * text.size());
  return put_part(m, value, done, text.size() - done) && m.put(quoted);
}

bool put_json_text(Machine& m, const Value& value, bool ensures_ascii) {
  const std::string_view text = value.text();
  if (!m.put("\"")) return false;
  u64 done = 0;
  for (u64 at = 0; at < text.size();) {
    const u8 byte = static_cast<u8>(text[at]);
    const bool is_plain =
        byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x7F || !ensures_ascii);
    if (is_plain) {
      ++at;
      continue;
    }
    if (!put_part(m, value, done, at - done)) return false;
    const text::CodePoint c = code_point(text, at);
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f";
    constexpr std::string_view kTo = "\"\\nrtbf";
    const u64 known = byte < 0x80 ? kFrom.find(static_cast<char>(byte)) : kFrom.npos;
    bool is_written = false;
    if (known != kFrom.npos) {
      is_written = m.put("\\") && m.put(kTo.substr(known, 1));
    } else if (c.value < 0x10000) {
      is_written = put_hex(m, "\\u", c.value, 4);
    } else {
      const u32 offset = c.value - 0x10000;
      is_written = put_hex(m, "\\u", 0xD800 + (offset >> 10), 4) &&
                   put_hex(m, "\\u", 0xDC00 + (offset & 0x3FF), 4);
    }
    if (!is_written) return false;
    at += c.n_bytes;
    done = at;
  }
  m.work(u64{4} * text.size());
  return put_part(m, value, done, text.size() - done) && m.put("\"");
}

bool put_scalar(Machine& m, const Value& value, bool is_json) {
  switch (value.kind) {
    case Kind::none:
      return m.put(is_json ? "null" : "None");
    case Kind::boolean:
      if (is_json) return m.put(value.integer != 0 ? "true" : "false");
      return m.put(value.integer != 0 ? "True" : "False");
    case Kind::integer:
      return put_integer(m, value.integer);
    case Kind::real:
      return put_real(m, value.real, is_json);
    case Kind::big:
      return m.put(value);
    default:
      return m.unknown("printing a function, a view or a generator").no();
  }
}

bool put_new_line(Machine& m, const JsonStyle& style, u32 level) {
  if (style.indent < 0) return true;
  if (!m.put("\n")) return false;
  constexpr std::string_view kSpaces =
      "                                                                ";
  for (u64 left = static_cast<u64>(style.indent) * level; left > 0;) {
    const u64 n = std::min<u64>(left, kSpaces.size());
    if (!m.put(kSpaces.substr(0, n))) return false;
    left -= n;
  }
  return true;
}

bool put_json_key(Machine& m, const Value& key, const JsonStyle& style) {
  if (key.is_text()) return put_json_text(m, key, style.ensures_ascii);
  return m.put("\"") && put_scalar(m, key, true) && m.put("\"");
}

// Sorts by the keys, which are texts.
std::optional<std::span<const Entry>> sorted(Machine& m, std::span<const Entry> entries) {
  const std::span<Entry> copy = m.alloc<Entry>(entries.size());
  if (copy.empty()) return Failed{};
  std::copy(entries.begin(), entries.end(), copy.begin());
  for (const Entry& entry : copy) {
    if (!entry.key.is_text()) return m.unknown("sorting keys that are no texts");
    m.work(u64{1024} + u64{16} * entry.key.n);  // sixteen comparisons
  }
  if (!m.step()) return Failed{};
  std::sort(copy.begin(), copy.end(), [](const Entry& a, const Entry& b) {
    return a.key.text() < b.key.text();  // keys differ
  });
  return std::span<const Entry>(copy);
}

}  // namespace

bool put_integer(Machine& m, i64 value) {
  std::array<char, 24> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return m.put({buffer.data(), static_cast<u64>(end.ptr - buffer.data())});
}

bool put_code_point(Machine& m, u32 code_point, u8 origin) {
  std::array<char, 4> bytes{};
  return m.put({bytes.data(), text::encode_utf8(code_point, bytes.data())}, origin);
}

bool put_text(Machine& m, const Value& value) {
  if (value.is_text()) return m.put(value);
  if (value.is(Kind::undefined)) return true;
  return put_repr(m, value);
}

MaybeValue text_of(Machine& m, const Value& value) {
  if (value.is_text()) return value;
  const u64 begin = m.begin();
  if (!put_text(m, value)) return Failed{};
  return m.take(begin);
}

bool put_repr(Machine& m, const Value& value) {
  const Level level(m);
  if (!level || !m.step()) return false;
  switch (value.kind) {
    case Kind::undefined:
      return m.put("Undefined");
    case Kind::text:
      return put_text_repr(m, value);
    case Kind::list:
    case Kind::tuple: {
      const bool is_list = value.is(Kind::list);
      if (!m.put(is_list ? "[" : "(")) return false;
      for (u64 i = 0; i < value.n; ++i) {
        if (i > 0 && !m.put(", ")) return false;
        if (!put_repr(m, value.items[i])) return false;
      }
      return m.put(is_list ? "]" : value.n == 1 ? ",)" : ")");
    }
    case Kind::dict: {
      if (!m.put("{")) return false;
      for (u64 i = 0; i < value.n; ++i) {
        const Entry& entry = value.entries[i];
        if (i > 0 && !m.put(", ")) return false;
        if (!put_repr(m, entry.key) || !m.put(": ") || !put_repr(m, entry.value)) return false;
      }
      return m.put("}");
    }
    default:
      return put_scalar(m, value, false);
  }
}

bool put_json(Machine& m, const Value& value, const JsonStyle& style, u32 level) {
  const Level deeper(m);
  if (!deeper || !m.step()) return false;
  const bool is_list = value.is(Kind::list) || value.is(Kind::tuple);
  if (value.is_text()) return put_json_text(m, value, style.ensures_ascii);
  if (!is_list && !value.is(Kind::dict)) {
    const bool is_scalar = value.is(Kind::none) || value.is_number() || value.is(Kind::big);
    if (!is_scalar) return m.wrong("tojson of what is no JSON").no();
    return put_scalar(m, value, true);
  }
  if (value.n == 0) return m.put(is_list ? "[]" : "{}");
  std::span<const Entry> entries;
  if (!is_list) {
    entries = entries_of(value);
    if (style.sorts_keys) {
      const auto in_order = sorted(m, entries);
      if (!in_order) return false;
      entries = *in_order;
    }
  }
  if (!m.put(is_list ? "[" : "{")) return false;
  for (u64 i = 0; i < value.n; ++i) {
    if (i > 0 && !m.put(style.between_items)) return false;
    if (!put_new_line(m, style, level + 1)) return false;
    if (!is_list && (!put_json_key(m, entries[i].key, style) || !m.put(style.behind_key))) {
      return false;
    }
    if (!put_json(m, is_list ? value.items[i] : entries[i].value, style, level + 1)) return false;
  }
  return put_new_line(m, style, level) && m.put(is_list ? "]" : "}");
}

}  // namespace tarn::chat
