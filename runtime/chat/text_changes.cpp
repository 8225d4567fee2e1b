// Shared by methods and filters of texts: each byte keeps its origin.
#include "runtime/chat/call.h"
#include "runtime/chat/characters.h"

namespace tarn::chat {
namespace {

constexpr u64 kSetBytesMax = 256;

}  // namespace

MaybeValue stripped(Machine& m, const Value& text, const Value* characters, bool left, bool right) {
  const std::string_view whole = text.text();
  std::string_view any;
  const bool spaces = characters == nullptr || characters->is(Kind::none);
  if (!spaces) {
    if (!characters->is_text()) return m.wrong("strip: an argument that must be a text");
    any = characters->text();
    if (any.size() > kSetBytesMax) return m.unknown("strip() of so many characters");
  }
  const auto goes = [&](u64 at) {
    const text::CodePoint c = code_point(whole, at);
    if (spaces) return is_python_space(c.value);
    return any.find(whole.substr(at, c.n_bytes)) != any.npos;
  };
  u64 begin = 0;
  u64 end = whole.size();
  while (left && begin < end && goes(begin)) begin += code_point(whole, begin).n_bytes;
  while (right && end > begin) {
    const u64 last = code_point_before(whole, end);
    if (!goes(last)) break;
    end = last;
  }
  m.work((whole.size() - (end - begin)) * (32 + 4 * any.size()));
  return part_of(text, begin, end - begin);
}

MaybeValue replaced(Machine& m, const Value& text, std::string_view from, const Value& to, i64 n) {
  const std::string_view whole = text.text();
  u64 left = n < 0 ? ~u64{0} : static_cast<u64>(n);
  m.work(u64{8} * whole.size());
  const u64 mark = m.begin();
  u64 done = 0;
  if (from.empty()) {  // before each character and behind the last
    for (u64 at = 0; left > 0 && at <= whole.size(); --left) {
      if (!m.step() || !m.put(to)) return Failed{};
      if (at == whole.size()) break;
      const u64 n_bytes = code_point(whole, at).n_bytes;
      if (!m.put(part_of(text, at, n_bytes))) return Failed{};
      at += n_bytes;
      done = at;
    }
  } else {
    u64 at = find_text(whole, from);
    if (at == whole.npos || left == 0) return text;
    for (; at != whole.npos && left > 0; at = find_text(whole, from, done), --left) {
      if (!m.step() || !m.put(part_of(text, done, at - done)) || !m.put(to)) return Failed{};
      done = at + from.size();
    }
  }
  if (!m.put(part_of(text, done, whole.size() - done))) return Failed{};
  return m.take(mark);
}

MaybeValue escaped(Machine& m, const Value& text) {
  Value safe = text;
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  const std::string_view whole = text.text();
  m.work(u64{8} * whole.size());
  if (text.id != kSafe && whole.find_first_of(kSpecial) != whole.npos) {
    const u64 mark = m.begin();
    u64 done = 0;
    for (u64 at = whole.find_first_of(kSpecial); at != whole.npos;
         at = whole.find_first_of(kSpecial, done)) {
      if (!m.put(part_of(text, done, at - done))) return Failed{};
      if (!m.put(kEscapes[kSpecial.find(whole[at])])) return Failed{};
      done = at + 1;
    }
    if (!m.put(part_of(text, done, whole.size() - done))) return Failed{};
    TARN_GET(safe, m.take(mark));
  }
  safe.id = kSafe;
  return safe;
}

MaybeValue in_case(Machine& m, const Value& text, Case wanted) {
  const u64 mark = m.begin();
  bool in_word = false;
  for (u64 at = 0; at < text.n;) {
    const text::CodePoint c = code_point(text.text(), at);
    if (wanted == Case::title && c.value >= 0x80) return m.unknown("title() beyond ASCII");
    const bool raises = wanted == Case::title ? !in_word : at == 0;
    in_word = c.value < 0x80 && is_alpha(static_cast<char>(c.value));
    text::Cased cased = wanted == Case::upper             ? text::python_upper(c.value)
                        : wanted != Case::lower && raises ? text::python_title(c.value)
                                                          : text::python_lower(c.value);
    if (c.value == 0x3A3 && cased.n == 0) {  // a capital sigma
      cased = {.n = 1, .code_points = {text::is_final_sigma(text.text(), at) ? 0x3C2u : 0x3C3u}};
    }
    if (cased.n == 0) return m.unknown("the case of a character that depends on others");
    const u8 origin = text.origins != nullptr ? text.origins[at] : text.origin;
    for (u32 i = 0; i < cased.n; ++i) {
      if (!put_code_point(m, cased.code_points[i], origin)) return Failed{};
    }
    at += c.n_bytes;
  }
  m.work(u64{32} * text.n);
  TARN_GET(Value changed, m.take(mark));
  changed.id = text.id;
  return changed;
}

}  // namespace tarn::chat
