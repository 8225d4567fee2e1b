// '...' % values and '...'.format(...), with what templates use of them.
#include <charconv>

#include "runtime/chat/call.h"
#include "runtime/chat/characters.h"

namespace tarn::chat {

MaybeValue percent_formatted(Machine& m, const Value& format, std::span<const Value> values) {
  const std::string_view text = format.text();
  const u64 mark = m.begin();
  u64 n_used = 0;
  u64 done = 0;
  for (u64 at = text.find('%'); at != text.npos; at = text.find('%', done)) {
    if (!m.step() || !m.put(part_of(format, done, at - done))) return Failed{};
    const char kind = at + 1 < text.size() ? text[at + 1] : '\0';
    done = at + 2;
    if (kind == '%') {
      if (!m.put("%")) return Failed{};
      continue;
    }
    if (kind != 's' && kind != 'd' && kind != 'r') return m.unknown("a format with more than %s");
    if (n_used == values.size()) return m.wrong("a format with too few values");
    const Value& value = values[n_used++];
    if (kind == 'd' && !value.is_whole()) return m.unknown("%d of what is no whole number");
    const bool is_put = kind == 'd'   ? put_integer(m, value.integer)
                        : kind == 'r' ? put_repr(m, value)
                                      : put_text(m, value);
    if (!is_put) return Failed{};
  }
  if (n_used < values.size() && !(values.size() == 1 && values[0].is(Kind::dict))) {
    return m.wrong("a format with too many values");
  }
  if (!m.put(part_of(format, done, text.size() - done))) return Failed{};
  return m.take(mark);
}

MaybeValue formatted(Machine& m, const Value& format, const Arguments& arguments) {
  if (format.id == kSafe) return m.unknown("format() of a safe text");
  const std::string_view text = format.text();
  const u64 mark = m.begin();
  u64 next = 0;  // value of a field without a name
  u64 done = 0;
  for (u64 at = text.find_first_of("{}"); at != text.npos; at = text.find_first_of("{}", done)) {
    if (!m.step() || !m.put(part_of(format, done, at - done))) return Failed{};
    if (at + 1 < text.size() && text[at + 1] == text[at]) {
      if (!m.put(part_of(format, at, 1))) return Failed{};
      done = at + 2;
      continue;
    }
    const u64 end = text[at] == '{' ? text.find('}', at) : text.npos;
    if (end == text.npos) return m.wrong("a format with a single brace");
    const std::string_view field = text.substr(at + 1, end - at - 1);
    if (field.find_first_of("{.[:!") != field.npos) return m.unknown("a format with more than {}");
    const Value* value = nullptr;
    if (field.empty()) {
      value = arguments.find(next++, "");
    } else if (is_digit(field[0])) {
      u64 place = 0;
      const char* last = field.data() + field.size();
      if (std::from_chars(field.data(), last, place).ptr == last) value = arguments.find(place, "");
    } else {
      value = arguments.find(arguments.n(), field);
    }
    if (value == nullptr) return m.wrong("a format with too few values");
    if (!put_text(m, *value)) return Failed{};
    done = end + 1;
  }
  if (!m.put(part_of(format, done, text.size() - done))) return Failed{};
  return m.take(mark);
}

}  // namespace tarn::chat
