// The methods of texts, with an origin for each byte.
#include <algorithm>

#include "runtime/chat/call.h"
#include "runtime/chat/characters.h"

namespace tarn::chat {
namespace {

constexpr i64 kAll = i64{1} << 40;

std::optional<std::string_view> wanted_text(Machine& m, const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is(Kind::undefined)) return m.wrong(value.text());
  return m.wrong("an argument that must be a text");
}

std::optional<i64> optional_integer(Machine& m, const Value* value, i64 otherwise) {
  if (value == nullptr) return otherwise;
  return integer_of(m, *value);
}

// How often `what` is in `text`, without overlap, at most `limit` times.
u64 count_of(std::string_view text, std::string_view what, i64 limit) {
  u64 n = 0;
  for (u64 at = find_text(text, what); at != text.npos && static_cast<i64>(n) < limit;
       at = find_text(text, what, at + what.size())) {
    ++n;
  }
  return n;
}

// A search from the end is quadratic for texts made for it, so it is paid for as such.
bool may_find_backwards(Machine& m, std::string_view text, std::string_view what) {
  m.work(text.size() * std::min<u64>(what.size(), 4096));
  return m.step();
}

// The words of a text, up to `limit` of them and the rest, from either side. Writes them where
// there is room, and returns their number.
u64 words_of(const Value& of, i64 limit, bool from_right, std::span<Value> words) {
  const std::string_view text = of.text();
  u64 n = 0;
  const auto add = [&](u64 begin, u64 end) {
    if (n < words.size()) words[n] = part_of(of, begin, end - begin);
    ++n;
  };
  if (from_right) {
    for (std::string_view rest = without_spaces_behind(text); !rest.empty();) {
      u64 begin = static_cast<i64>(n) == limit ? 0 : rest.size();
      while (begin > 0) {
        const u64 before = code_point_before(rest, begin);
        if (is_python_space(code_point(rest, before).value)) break;
        begin = before;
      }
      add(begin, rest.size());
      rest = without_spaces_behind(rest.substr(0, begin));
    }
    return n;
  }
  for (u64 at = skip_spaces(text, 0); at < text.size();) {
    u64 end = static_cast<i64>(n) == limit ? text.size() : at;
    while (end < text.size() && !is_python_space(code_point(text, end).value)) {
      end += code_point(text, end).n_bytes;
    }
    add(at, end);
    at = skip_spaces(text, end);
  }
  return n;
}

MaybeValue split_at_spaces(Machine& m, const Value& of, i64 limit, bool from_right) {
  m.work(u64{16} * of.n);
  const u64 n = words_of(of, limit, from_right, {});
  if (n == 0) return make_items(Kind::list, {});
  const std::span<Value> words = m.alloc<Value>(n);
  if (words.empty()) return Failed{};
  words_of(of, limit, from_right, words);
  if (from_right) std::reverse(words.begin(), words.end());
  return make_items(Kind::list, words);
}

MaybeValue split(Machine& m, const Value& of, const Arguments& arguments, bool from_right) {
  if (!arguments.match(m, {"sep", "maxsplit"}, 0)) return Failed{};
  TARN_GET(const i64 given, optional_integer(m, arguments.find(1, "maxsplit"), -1));
  const i64 limit = given < 0 ? kAll : given;
  const Value* sep = arguments.find(0, "sep");
  if (sep == nullptr || sep->is(Kind::none)) return split_at_spaces(m, of, limit, from_right);
  TARN_GET(const std::string_view at, wanted_text(m, *sep));
  if (at.empty()) return m.wrong("split: an empty separator");
  const std::string_view text = of.text();
  m.work(u64{8} * text.size());
  if (from_right && !may_find_backwards(m, text, at)) return Failed{};
  const u64 n = count_of(text, at, limit) + 1;
  const std::span<Value> parts = m.alloc<Value>(n);
  if (parts.empty()) return Failed{};
  if (from_right) {
    u64 end = text.size();
    for (u64 i = n - 1; i > 0; --i) {
      const u64 found = text.substr(0, end).rfind(at);
      parts[i] = part_of(of, found + at.size(), end - found - at.size());
      end = found;
    }
    parts[0] = part_of(of, 0, end);
    return make_items(Kind::list, parts);
  }
  u64 begin = 0;
  for (u64 i = 0; i + 1 < n; ++i) {
    const u64 found = find_text(text, at, begin);
    parts[i] = part_of(of, begin, found - begin);
    begin = found + at.size();
  }
  parts[n - 1] = part_of(of, begin, text.size() - begin);
  return make_items(Kind::list, parts);
}

MaybeValue split_left(Machine& m, const Value& of, const Arguments& arguments) {
  return split(m, of, arguments, false);
}
MaybeValue split_right(Machine& m, const Value& of, const Arguments& arguments) {
  return split(m, of, arguments, true);
}

u64 lines_of(const Value& of, bool keeps_ends, std::span<Value> lines) {
  const std::string_view text = of.text();
  u64 n = 0;
  for (u64 begin = 0; begin < text.size(); ++n) {
    u64 end = begin;
    u64 next = text.size();
    while (end < text.size()) {
      const text::CodePoint c = code_point(text, end);
      const u32 v = c.value;
      const bool ends = (v >= 0x0A && v <= 0x0D) || (v >= 0x1C && v <= 0x1E) || v == 0x85 ||
                        v == 0x2028 || v == 0x2029;
      if (ends) {
        next = end + c.n_bytes;
        if (v == 0x0D && next < text.size() && text[next] == '\n') ++next;
        break;
      }
      end += c.n_bytes;
    }
    if (n < lines.size()) lines[n] = part_of(of, begin, (keeps_ends ? next : end) - begin);
    begin = next;
  }
  return n;
}

MaybeValue splitlines(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"keepends"}, 0)) return Failed{};
  const Value* keeps = arguments.find(0, "keepends");
  const bool keeps_ends = keeps != nullptr && is_true(*keeps);
  m.work(u64{16} * of.n);
  const u64 n = lines_of(of, keeps_ends, {});
  if (n == 0) return make_items(Kind::list, {});
  const std::span<Value> lines = m.alloc<Value>(n);
  if (lines.empty()) return Failed{};
  lines_of(of, keeps_ends, lines);
  return make_items(Kind::list, lines);
}

MaybeValue strip(Machine& m, const Value& of, const Arguments& arguments, bool left, bool right) {
  if (!arguments.match(m, {"chars"}, 0)) return Failed{};
  return stripped(m, of, arguments.find(0, "chars"), left, right);
}
MaybeValue strip_both(Machine& m, const Value& of, const Arguments& arguments) {
  return strip(m, of, arguments, true, true);
}
MaybeValue strip_left(Machine& m, const Value& of, const Arguments& arguments) {
  return strip(m, of, arguments, true, false);
}
MaybeValue strip_right(Machine& m, const Value& of, const Arguments& arguments) {
  return strip(m, of, arguments, false, true);
}

MaybeValue has_end(Machine& m, const Value& of, const Arguments& arguments, bool at_begin) {
  if (!arguments.match(m, {"affix"}, 1)) return Failed{};
  const Value& affix = arguments.at(0);
  const std::span<const Value> all = affix.is(Kind::tuple) ? affix.span() : std::span(&affix, 1);
  bool has = false;
  for (const Value& one : all) {
    TARN_GET(const std::string_view text, wanted_text(m, one));
    m.work(text.size());
    if (!m.step()) return Failed{};
    has |= at_begin ? of.text().starts_with(text) : of.text().ends_with(text);
  }
  return make_bool(has);
}
MaybeValue startswith(Machine& m, const Value& of, const Arguments& arguments) {
  return has_end(m, of, arguments, true);
}
MaybeValue endswith(Machine& m, const Value& of, const Arguments& arguments) {
  return has_end(m, of, arguments, false);
}

MaybeValue removeprefix(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"prefix"}, 1)) return Failed{};
  TARN_GET(const std::string_view prefix, wanted_text(m, arguments.at(0)));
  m.work(prefix.size());
  if (!of.text().starts_with(prefix)) return of;
  return part_of(of, prefix.size(), of.n - prefix.size());
}
MaybeValue removesuffix(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"suffix"}, 1)) return Failed{};
  TARN_GET(const std::string_view suffix, wanted_text(m, arguments.at(0)));
  m.work(suffix.size());
  if (!of.text().ends_with(suffix)) return of;
  return part_of(of, 0, of.n - suffix.size());
}

MaybeValue replace(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"old", "new", "count"}, 2)) return Failed{};
  if (of.id == kSafe) return m.unknown("replace() of a safe text");
  TARN_GET(const std::string_view from, wanted_text(m, *arguments.find(0, "old")));
  const Value& to = *arguments.find(1, "new");
  TARN_GET(const std::string_view to_text, wanted_text(m, to));
  static_cast<void>(to_text);
  TARN_GET(const i64 n, optional_integer(m, arguments.find(2, "count"), -1));
  return replaced(m, of, from, to, n);
}

MaybeValue position(Machine& m, const Value& of, const Arguments& arguments, bool from_right,
                    bool must_be) {
  if (!arguments.match(m, {"sub"}, 1)) return m.unknown("find() with a begin");
  TARN_GET(const std::string_view what, wanted_text(m, arguments.at(0)));
  m.work(u64{8} * of.n);
  if (from_right && !may_find_backwards(m, of.text(), what)) return Failed{};
  const u64 at = from_right ? of.text().rfind(what) : find_text(of.text(), what);
  if (at != std::string_view::npos) {
    return make_integer(static_cast<i64>(count_code_points(of.text().substr(0, at))));
  }
  if (must_be) return m.wrong("index() of what is not in the text");
  return make_integer(-1);
}
MaybeValue find(Machine& m, const Value& of, const Arguments& arguments) {
  return position(m, of, arguments, false, false);
}
MaybeValue rfind(Machine& m, const Value& of, const Arguments& arguments) {
  return position(m, of, arguments, true, false);
}
MaybeValue index(Machine& m, const Value& of, const Arguments& arguments) {
  return position(m, of, arguments, false, true);
}

MaybeValue count(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"sub"}, 1)) return m.unknown("count() with a begin");
  TARN_GET(const std::string_view what, wanted_text(m, arguments.at(0)));
  m.work(u64{8} * of.n);
  const u64 n = what.empty() ? count_code_points(of.text()) + 1 : count_of(of.text(), what, kAll);
  return make_integer(static_cast<i64>(n));
}

MaybeValue join(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"iterable"}, 1)) return Failed{};
  if (of.id == kSafe) return m.unknown("join() of a safe text");
  TARN_GET(const auto items, items_of(m, arguments.at(0)));
  const u64 begin = m.begin();
  for (u64 i = 0; i < items.size(); ++i) {
    if (!items[i].is_text()) return m.wrong("join() of what is no text");
    if (!m.step() || (i > 0 && !m.put(of)) || !m.put(items[i])) return Failed{};
  }
  return m.take(begin);
}

MaybeValue partition(Machine& m, const Value& of, const Arguments& arguments, bool from_right) {
  if (!arguments.match(m, {"sep"}, 1)) return Failed{};
  TARN_GET(const std::string_view at, wanted_text(m, arguments.at(0)));
  if (at.empty()) return m.wrong("partition: an empty separator");
  m.work(u64{8} * of.n);
  if (from_right && !may_find_backwards(m, of.text(), at)) return Failed{};
  const u64 found = from_right ? of.text().rfind(at) : find_text(of.text(), at);
  const std::span<Value> parts = m.alloc<Value>(3);
  if (parts.empty()) return Failed{};
  parts[0] = parts[1] = parts[2] = make_text("");
  if (found == std::string_view::npos) {
    parts[from_right ? 2 : 0] = of;
  } else {
    parts[0] = part_of(of, 0, found);
    parts[1] = part_of(of, found, at.size());
    parts[2] = part_of(of, found + at.size(), of.n - found - at.size());
  }
  return make_items(Kind::tuple, parts);
}
MaybeValue partition_left(Machine& m, const Value& of, const Arguments& arguments) {
  return partition(m, of, arguments, false);
}
MaybeValue partition_right(Machine& m, const Value& of, const Arguments& arguments) {
  return partition(m, of, arguments, true);
}

template <Case wanted>
MaybeValue cased(Machine& m, const Value& of, const Arguments& arguments) {
  return arguments.match(m, {}, 0) ? in_case(m, of, wanted) : MaybeValue();
}

// Tests texts of ASCII; others would take tables that no template has needed.
template <bool (*holds)(char)>
MaybeValue all_are(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  m.work(u64{4} * of.n);
  for (const char c : of.text()) {
    if (static_cast<u8>(c) >= 0x80) return m.unknown("the class of characters beyond ASCII");
    if (!holds(c)) return make_bool(false);
  }
  return make_bool(of.n > 0);
}
bool is_alnum(char c) { return is_digit(c) || is_alpha(c); }

MaybeValue isspace(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  m.work(u64{16} * of.n);
  return make_bool(of.n > 0 && skip_spaces(of.text(), 0) == of.n);
}

template <bool upper>
MaybeValue has_case(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  bool has = false;
  m.work(u64{4} * of.n);
  for (const char c : of.text()) {
    const u8 byte = static_cast<u8>(c);
    if (byte >= 0x80) return m.unknown("the class of characters beyond ASCII");
    if (!is_alpha(c)) continue;
    if ((byte < 'a') != upper) return make_bool(false);
    has = true;
  }
  return make_bool(has);
}

constexpr Named kText[] = {
    {"split", split_left},
    {"rsplit", split_right},
    {"splitlines", splitlines},
    {"strip", strip_both},
    {"lstrip", strip_left},
    {"rstrip", strip_right},
    {"startswith", startswith},
    {"endswith", endswith},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"find", find},
    {"rfind", rfind},
    {"index", index},
    {"count", count},
    {"join", join},
    {"format", formatted},
    {"partition", partition_left},
    {"rpartition", partition_right},
    {"lower", cased<Case::lower>},
    {"upper", cased<Case::upper>},
    {"title", cased<Case::title>},
    {"capitalize", cased<Case::capitalized>},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_digit>},
    {"isnumeric", all_are<is_digit>},
    {"isalpha", all_are<is_alpha>},
    {"isalnum", all_are<is_alnum>},
    {"isspace", isspace},
    {"isupper", has_case<true>},
    {"islower", has_case<false>},
    {"casefold", nullptr},
    {"center", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format_map", nullptr},
    {"isascii", nullptr},
    {"isidentifier", nullptr},
    {"isprintable", nullptr},
    {"istitle", nullptr},
    {"ljust", nullptr},
    {"maketrans", nullptr},
    {"rindex", nullptr},
    {"rjust", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
};

}  // namespace

std::span<const Named> text_methods() { return kText; }

}  // namespace tarn::chat
