// Filters of single values; those of lists are in list_filters.cpp.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/chat/call.h"
#include "runtime/chat/characters.h"

namespace tarn::chat {
namespace {

MaybeValue default_(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"default_value", "boolean"}, 0)) return Failed{};
  const Value* otherwise = arguments.find(0, "default_value");
  const Value* boolean = arguments.find(1, "boolean");
  const bool is_missing =
      of.is(Kind::undefined) || (boolean != nullptr && is_true(*boolean) && !is_true(of));
  if (!is_missing) return of;
  return otherwise != nullptr ? *otherwise : make_text("");
}

MaybeValue length(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(const u64 n, length_of(m, of));
  return make_integer(static_cast<i64>(n));
}

MaybeValue trim(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"chars"}, 0)) return Failed{};
  TARN_GET(const Value text, text_of(m, of));
  return stripped(m, text, arguments.find(0, "chars"), true, true);
}

template <Case wanted>
MaybeValue cased(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(const Value text, text_of(m, of));
  return in_case(m, text, wanted);
}

// Jinja2's own: words begin behind spaces, - and opening brackets.
MaybeValue title(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(const Value text, text_of(m, of));
  const u64 mark = m.begin();
  const auto ends_word = [](u32 c) {
    return is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (u64 at = 0; at < text.n;) {
    u64 end = at;
    const bool is_gap = ends_word(code_point(text.text(), at).value);
    while (end < text.n && ends_word(code_point(text.text(), end).value) == is_gap) {
      end += code_point(text.text(), end).n_bytes;
    }
    const u64 second = is_gap ? end : at + code_point(text.text(), at).n_bytes;
    TARN_GET(const Value begin, in_case(m, part_of(text, at, second - at), Case::upper));
    TARN_GET(const Value rest, in_case(m, part_of(text, second, end - second), Case::lower));
    if (!m.put(begin) || !m.put(rest)) return Failed{};
    at = end;
  }
  return m.take(mark);
}

MaybeValue string(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  return text_of(m, of);
}

MaybeValue safe(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(Value text, text_of(m, of));
  text.id = kSafe;
  return text;
}

MaybeValue escape(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  TARN_GET(const Value text, text_of(m, of));
  return escaped(m, text);
}

MaybeValue replace(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"old", "new", "count"}, 2)) return Failed{};
  TARN_GET(Value text, text_of(m, of));
  TARN_GET(const Value from, text_of(m, *arguments.find(0, "old")));
  TARN_GET(const Value to, text_of(m, *arguments.find(1, "new")));
  const Value* count = arguments.find(2, "count");
  i64 n = -1;
  if (count != nullptr && !count->is(Kind::none)) {
    TARN_GET(n, integer_of(m, *count));
  }
  text.id = 0;
  return replaced(m, text, from.text(), to, n);
}

MaybeValue indent(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"width", "first", "blank"}, 0)) return Failed{};
  if (!of.is_text()) return m.wrong("indent: what is no text");
  const Value& text = of;
  const Value* width = arguments.find(0, "width");
  const Value* first = arguments.find(1, "first");
  const Value* blank = arguments.find(2, "blank");
  const bool indents_first = first != nullptr && is_true(*first);
  const bool indents_blank = blank != nullptr && is_true(*blank);
  Value by = make_text("    ");
  if (width != nullptr) {
    TARN_GET(by, width->is_text() ? *width : binary_of(m, Op::multiply, make_text(" "), *width));
  }
  const u64 mark = m.begin();
  if (indents_first && !m.put(by)) return Failed{};
  bool is_first = true;
  for (u64 at = 0; at <= text.n;) {
    const u64 newline = std::min<u64>(text.text().find('\n', at), text.n);
    u64 end = newline;
    if (end > at && text.bytes[end - 1] == '\r') --end;
    const Value line = part_of(text, at, end - at);
    for (u64 i = 0; i < line.n; i += code_point(line.text(), i).n_bytes) {
      const u32 c = code_point(line.text(), i).value;
      const bool ends = (c >= 0x0A && c < 0x20) || c == 0x85 || c == 0x2028 || c == 0x2029;
      if (ends) return m.unknown("indent of odd line ends");
    }
    const bool is_indented = !is_first && (line.n > 0 || indents_blank);
    if (!m.step() || (!is_first && !m.put("\n")) || (is_indented && !m.put(by)) || !m.put(line)) {
      return Failed{};
    }
    is_first = false;
    at = newline + 1;
  }
  return m.take(mark);
}

// Without what Python takes before and behind a number.
std::string_view number_text(const Value& text) {
  std::string_view bytes = without_spaces_behind(text.text());
  bytes.remove_prefix(skip_spaces(bytes, 0));
  if (bytes.size() > 1 && bytes[0] == '+' && bytes[1] != '-') bytes.remove_prefix(1);
  return bytes;
}

template <class T>
std::optional<T> parsed(std::string_view text) {
  T value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns whether Python reads the text as a number and parsed() does not: underscores, other
// scripts' digits.
bool is_foreign_number(std::string_view text) {
  for (u64 at = 0; at < text.size();) {
    const text::CodePoint c = code_point(text, at);
    const bool is_number = c.value >= 0x80 && text::class_of(c.value) == text::CharClass::number;
    if (is_number || c.value == '_' || c.value == '(') return true;
    at += c.n_bytes;
  }
  return false;
}

MaybeValue whole(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"default"}, 0)) return m.unknown("int with a base");
  const Value* given = arguments.find(0, "default");
  const Value otherwise = given != nullptr ? *given : make_integer(0);
  if (of.is(Kind::undefined)) return m.wrong(of.text());
  if (of.is(Kind::big)) return of;
  if (of.is_whole()) return make_integer(of.integer);
  f64 real = 0;
  if (of.is(Kind::real)) {
    real = of.real;
  } else if (of.is_text()) {
    m.work(u64{16} * of.n);
    if (is_foreign_number(of.text())) return m.unknown("numbers that are not decimal digits");
    if (const auto value = parsed<i64>(number_text(of))) return make_integer(*value);
    const auto value = parsed<f64>(number_text(of));
    if (!value) return otherwise;
    real = *value;
  } else {
    return otherwise;
  }
  if (!std::isfinite(real)) return otherwise;
  if (std::abs(real) > 9e18) return m.unknown("arithmetic with an integer so large");
  return make_integer(static_cast<i64>(real));
}

MaybeValue real(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"default"}, 0)) return Failed{};
  const Value* given = arguments.find(0, "default");
  const Value otherwise = given != nullptr ? *given : make_real(0);
  if (of.is(Kind::undefined)) return m.wrong(of.text());
  if (of.is_number()) return make_real(of.as_real());
  if (!of.is_text()) return otherwise;
  m.work(u64{16} * of.n);
  if (is_foreign_number(of.text())) return m.unknown("numbers that are not decimal digits");
  const auto value = parsed<f64>(number_text(of));
  return value ? make_real(*value) : otherwise;
}

MaybeValue absolute(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return Failed{};
  if (of.is(Kind::real)) return make_real(std::abs(of.real));
  if (!of.is_whole()) return m.wrong("abs of what is no number");
  return of.integer < 0 ? unary_of(m, Op::negative, of) : make_integer(of.integer);
}

MaybeValue round(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {}, 0)) return m.unknown("round with a precision or a method");
  if (of.is(Kind::real)) return make_real(std::nearbyint(of.real));
  if (!of.is_whole()) return m.wrong("round of what is no number");
  return make_integer(of.integer);
}

MaybeValue format(Machine& m, const Value& of, const Arguments& arguments) {
  TARN_GET(const Value text, text_of(m, of));
  if (arguments.n() == 0) return percent_formatted(m, text, {});
  const std::span<Value> values = m.alloc<Value>(arguments.n());
  if (values.empty()) return Failed{};
  for (u64 i = 0; i < values.size(); ++i) {
    if (!arguments.all()[i].name.empty()) return m.unknown("format with names");
    values[i] = arguments.at(i);
  }
  return percent_formatted(m, text, values);
}

MaybeValue tojson(Machine& m, const Value& of, const Arguments& arguments) {
  if (!arguments.match(m, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0)) {
    return Failed{};
  }
  JsonStyle style;
  const Value* ascii = arguments.find(0, "ensure_ascii");
  const Value* indent_by = arguments.find(1, "indent");
  const Value* separators = arguments.find(2, "separators");
  const Value* sorts = arguments.find(3, "sort_keys");
  style.ensures_ascii = ascii != nullptr && is_true(*ascii);
  style.sorts_keys = sorts != nullptr && is_true(*sorts);
  if (indent_by != nullptr && !indent_by->is(Kind::none)) {
    TARN_GET(style.indent, integer_of(m, *indent_by));
    if (style.indent < 0 || style.indent > 64) return m.unknown("tojson with such an indent");
    style.between_items = ",";
  }
  if (separators != nullptr && !separators->is(Kind::none)) {
    const bool is_pair = separators->has_items() && separators->n == 2 &&
                         separators->items[0].is_text() && separators->items[1].is_text();
    if (!is_pair) return m.wrong("tojson: separators are two texts");
    style.between_items = separators->items[0].text();
    style.behind_key = separators->items[1].text();
  }
  const u64 mark = m.begin();
  if (!put_json(m, of, style)) return Failed{};
  return m.take(mark);
}

constexpr Named kFilters[] = {
    {"abs", absolute},
    {"capitalize", cased<Case::capitalized>},
    {"count", length},
    {"d", default_},
    {"default", default_},
    {"e", escape},
    {"escape", escape},
    {"float", real},
    {"format", format},
    {"indent", indent},
    {"int", whole},
    {"length", length},
    {"lower", cased<Case::lower>},
    {"replace", replace},
    {"round", round},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", cased<Case::upper>},
};

}  // namespace

MaybeValue call_filter(Machine& m, std::string_view name, const Value& of,
                       const Arguments& arguments) {
  const Named* named = find_named(m, kFilters, name);
  if (named == nullptr) named = find_named(m, list_filters(), name);
  if (named == nullptr) {
    return m.refuse(
        "the chat template has a filter that Tarn does not know: pass another with "
        "--chat-template (chat_template)",
        name, Status::unsupported);
  }
  return named->fn(m, of, arguments);
}

}  // namespace tarn::chat
