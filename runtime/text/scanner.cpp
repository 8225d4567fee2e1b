#include "runtime/text/scanner.h"

#include <algorithm>

namespace tarn::text {
namespace {

bool is_newline(u32 code_point) { return code_point == '\r' || code_point == '\n'; }
bool is_newline_or_slash(u32 code_point) { return is_newline(code_point) || code_point == '/'; }
bool is_upper(u32 code_point) { return code_point >= 'A' && code_point <= 'Z'; }
bool is_lower(u32 code_point) { return code_point >= 'a' && code_point <= 'z'; }
bool is_digit(u32 code_point) { return code_point >= '0' && code_point <= '9'; }

bool is_letter(u32 code_point) { return is_upper(code_point) || is_lower(code_point); }
u32 lower(u32 code_point) { return is_upper(code_point) ? code_point - 'A' + 'a' : code_point; }

bool in_ranges(std::span<const CodeRange> ranges, u32 code_point) {
  const auto above =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](u32 point, const CodeRange& r) { return point < r.first; });
  return above != ranges.begin() && code_point <= (above - 1)->last;
}

// Ideographs, in whole blocks of Unicode.
constexpr CodeRange kHan[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                              {0x20000, 0x2A6DF}, {0x2A700, 0x2EBEF}, {0x2F800, 0x2FA1F}};
bool is_han(u32 code_point) { return code_point >= kHan[0].first && in_ranges(kHan, code_point); }

bool is_in(const CharSet& set, u32 code_point, CharClass kind) {
  const bool wide_space = kind == CharClass::space && code_point > 0x7F;
  const bool in_range = kind != CharClass::none && !wide_space && in_ranges(set.ranges, code_point);
  return set.excludes_ranges ? has(set.classes, kind) && !in_range
                             : has(set.classes, kind) || in_range;
}

}  // namespace

Scanner::Char Scanner::char_at(u64 at) const {
  if (at >= text_.size()) return {.value = 0, .kind = CharClass::none, .end = at};
  const CodePoint point = decode_lenient(text_, at);
  return {.value = point.value, .kind = class_of(point.value), .end = at + point.n_bytes};
}

u64 Scanner::skip(ClassSet set, u64 at) const {
  for (Char c = char_at(at); has(set, c.kind); c = char_at(at)) at = c.end;
  return at;
}

template <class Is>
u64 Scanner::skip_if(u64 at, const Is& is, u64 n_max) const {
  for (Char c = char_at(at); n_max > 0 && c.kind != CharClass::none && is(c.value); --n_max) {
    at = c.end;
    c = char_at(at);
  }
  return at;
}

// The end of the contraction at `at`, whose character is given; `at` if there is none.
u64 Scanner::contraction_end(const Char& first, u64 at, bool any_case) const {
  if (first.value != '\'') return at;
  const Char a = char_at(first.end);
  const u32 one = any_case ? lower(a.value) : a.value;
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return a.end;
  if (one != 'r' && one != 'v' && one != 'l') return at;
  const Char b = char_at(a.end);
  const u32 two = any_case ? lower(b.value) : b.value;
  return two == (one == 'l' ? u32{'l'} : u32{'e'}) ? b.end : at;
}

// The end of a match in a run of white space: its last newline if newlines bind; else all but the
// last character if text follows, else all.
u64 Scanner::spaces_end(bool newlines_end) const {
  u64 end = at_;
  u64 last_start = at_;
  u64 newline_end = at_;
  for (Char c = char_at(end); c.kind == CharClass::space; c = char_at(end)) {
    last_start = end;
    end = c.end;
    if (is_newline(c.value)) newline_end = end;
  }
  if (newlines_end && newline_end > at_) return newline_end;
  if (end < text_.size() && last_start > at_) return last_start;
  return end;
}

u64 Scanner::gpt2_end() const {
  Char c = char_at(at_);
  if (const u64 end = contraction_end(c, at_, false); end > at_) return end;
  if (c.value == ' ') c = char_at(c.end);
  if (c.kind == CharClass::space || c.kind == CharClass::none) return spaces_end(false);
  return skip(has(kSigns, c.kind) ? kSigns : set_of(c.kind), c.end);
}

u64 Scanner::spaced_end(u64 at) const {
  if (char_at(at).kind != CharClass::letter) return at;
  while (true) {
    const u64 end = skip(kMark, skip(kLetter, at));
    const Char c = char_at(end);
    const u64 next = c.value == ' ' ? c.end : end;
    if (char_at(next).kind != CharClass::letter) return end;
    at = next;
  }
}

// U*L+, which gives capital letters back until a letter of no case ends it; `at` if none does.
u64 Scanner::mixed_case_end(ClassSet set, u64 at) const {
  u64 no_case_end = at;
  Char c = char_at(at);
  for (; has(set, c.kind) && !is_lower(c.value); c = char_at(at)) {
    at = c.end;
    if (!is_upper(c.value)) no_case_end = at;
  }
  if (!has(set, c.kind)) return no_case_end;
  for (; has(set, c.kind) && !is_upper(c.value); c = char_at(at)) at = c.end;
  return at;
}

// The end of [^\r\n\p{L}\p{N}]? and the letters; at_ if there are none.
u64 Scanner::letters_end(Letters letters, const Char& first) const {
  const bool may_lead = !has(kLetter | kNumber, first.kind) && !is_newline(first.value);
  const auto with_lead = [&](auto&& run_end) {
    const u64 end = may_lead ? run_end(first.end) : at_;
    if (end > first.end) return end;
    return has(kLetter | kMark, first.kind) ? run_end(at_) : at_;
  };
  switch (letters) {
    case Letters::plain: {
      if (first.kind == CharClass::letter) return skip(kLetter, first.end);
      const Char second = may_lead ? char_at(first.end) : Char();
      return second.kind == CharClass::letter ? skip(kLetter, second.end) : at_;
    }
    case Letters::marked:
      return with_lead([&](u64 at) { return skip(kLetter | kMark, at); });
    case Letters::not_han:
      return with_lead([&](u64 at) {
        for (Char c = char_at(at); c.kind == CharClass::letter && !is_han(c.value);) {
          at = c.end;
          c = char_at(at);
        }
        return at;
      });
    case Letters::spaced:
      return with_lead([&](u64 at) { return spaced_end(at); });
    case Letters::cased:
    case Letters::cased_marked:
      break;
  }
  const ClassSet set = letters == Letters::cased ? kLetter : kLetter | kMark;
  const u64 mixed_end = with_lead([&](u64 at) { return mixed_case_end(set, at); });
  if (mixed_end > at_) return mixed_end;
  // U+L* where U*L+ does not match: capital letters alone.
  return with_lead([&](u64 at) { return skip_if(at, is_upper); });
}

u64 Scanner::tail_end(SignTail tail, u64 at) const {
  switch (tail) {
    case SignTail::none:
      return at;
    case SignTail::newlines:
      return skip_if(at, is_newline);
    case SignTail::newlines_slashes:
      return skip_if(at, is_newline_or_slash);
    case SignTail::newline_or_slash:
      break;
  }
  return skip_if(at, is_newline_or_slash, 1);
}

u64 Scanner::word_end(const WordRule& rule) const {
  const Char first = char_at(at_);
  if (rule.contractions == Contractions::before) {
    if (const u64 end = contraction_end(first, at_, true); end > at_) return end;
  }
  if (rule.letters == Letters::not_han && is_han(first.value)) return skip_if(first.end, is_han);
  if (const u64 end = letters_end(rule.letters, first); end > at_) {
    const bool may_contract = rule.contractions == Contractions::after;
    return may_contract ? contraction_end(char_at(end), end, true) : end;
  }
  if (first.kind == CharClass::number) {
    u64 end = first.end;
    for (u32 n = 1; n < rule.digits_max; ++n) {
      const Char c = char_at(end);
      if (c.kind != CharClass::number) break;
      end = c.end;
    }
    return end;
  }
  const Char sign = first.value == ' ' ? char_at(first.end) : first;
  if (!has(rule.signs, sign.kind)) return spaces_end(true);
  return tail_end(rule.tail, skip(rule.signs, sign.end));
}

// The end of the match at at_; at_ if there is none.
u64 Scanner::deepseek_match_end(Newlines newlines) const {
  constexpr ClassSet kBoth = kPunctuation | kSymbol;
  const Char first = char_at(at_);
  const Char second = char_at(first.end);
  const bool is_sign = has(kBoth, first.kind);
  if (is_sign && first.value < 0x80 && is_letter(second.value)) {
    return skip_if(second.end, is_letter);
  }
  const bool may_lead = !is_sign && first.kind != CharClass::letter && !is_newline(first.value);
  if (may_lead && has(kLetter | kMark, second.kind)) return skip(kLetter | kMark, second.end);
  if (has(kLetter | kMark, first.kind)) return skip(kLetter | kMark, first.end);
  const Char& sign = first.value == ' ' ? second : first;
  if (has(kBoth, sign.kind)) {
    const u64 end = skip(kBoth, sign.end);
    return newlines == Newlines::bind ? skip_if(end, is_newline) : end;
  }
  if (first.kind != CharClass::space) return at_;
  if (newlines == Newlines::alone && is_newline(first.value)) return first.end;
  return spaces_end(newlines == Newlines::bind);
}

bool Scanner::may_begin_deepseek(const Char& c) const {
  const bool begins = !has(kNumber | set_of(CharClass::other), c.kind);
  return begins || has(kLetter | kMark, char_at(c.end).kind);
}

u64 Scanner::deepseek_end(Newlines newlines) const {
  if (const u64 end = deepseek_match_end(newlines); end > at_) return end;
  u64 end = char_at(at_).end;
  for (Char c = char_at(end); c.kind != CharClass::none; c = char_at(end)) {
    if (may_begin_deepseek(c)) break;
    end = c.end;
  }
  return end;
}

Scanner::Run Scanner::run_at(const RunRule& rule, u64 at) const {
  const auto set_with = [&](const Char& c) -> const CharSet* {
    for (const CharSet& set : rule.sets) {
      if (is_in(set, c.value, c.kind)) return &set;
    }
    return nullptr;
  };
  const Char first = char_at(at);
  const bool is_lead = rule.lead == Lead::space
                           ? first.value == ' '
                           : rule.lead == Lead::white_space && first.kind == CharClass::space;
  if (is_lead) {
    if (const CharSet* set = set_with(char_at(first.end))) return {.set = set, .begin = first.end};
  }
  return {.set = set_with(first), .begin = at};
}

u64 Scanner::run_end(const RunRule& rule) const {
  const Run run = run_at(rule, at_);
  if (run.set != nullptr) {
    u64 end = run.begin;
    for (u32 n = 0; n < rule.n_max; ++n) {
      const Char c = char_at(end);
      if (!is_in(*run.set, c.value, c.kind)) break;
      end = c.end;
    }
    return end;
  }
  u64 end = char_at(at_).end;
  while (end < text_.size() && run_at(rule, end).set == nullptr) end = char_at(end).end;
  return end;
}

u64 Scanner::digit_triple_end() const {
  u64 begin = at_;  // of the last digits
  u64 n = 0;
  for (u64 end = at_; end < text_.size();) {
    const Char c = char_at(end);
    n = is_digit(c.value) ? n + 1 : 0;
    end = c.end;
    if (n == 3) return begin > at_ ? begin : end;
    if (n == 0) begin = end;
  }
  return text_.size();
}

u64 Scanner::number_groups_end() const {
  u64 end = at_;
  while (end < text_.size() && char_at(end).kind != CharClass::number) end = char_at(end).end;
  u32 n_first = 3;
  if (end >= *groups_end_) {
    u64 n = 0;
    u64 number_end = end;
    for (Char c = char_at(end); c.kind == CharClass::number; c = char_at(number_end)) {
      number_end = c.end;
      n += 1;
    }
    if (n % 3 != 0) n_first = static_cast<u32>(n % 3);
    *groups_end_ = number_end;
  }
  for (u32 i = 0; i < n_first && end < text_.size(); ++i) end = char_at(end).end;
  return end;
}

u64 Scanner::digit_groups_end() const {
  u64 at = at_;
  if (at < *groups_end_) {
    const u64 end = skip_if(at, is_digit, 3);
    if (end < *groups_end_) return end;
    at = end;
  }
  while (at < text_.size()) {
    u64 n = 0, end = at;
    for (Char c = char_at(at); is_digit(c.value); c = char_at(end)) {
      end = c.end;
      n += 1;
    }
    // A piece ends before the first group of three; the one at at_ is inside of it.
    const bool begins_group = n % 3 == 0;
    if (n > 3 || (n == 3 && at > at_)) {
      *groups_end_ = end;
      return begins_group && at > at_ ? at : skip_if(at, is_digit, begins_group ? 3 : n % 3);
    }
    at = n > 0 ? end : char_at(at).end;
  }
  return at;
}

u64 Scanner::trailing_spaces_end() const {
  u64 begin = at_;  // of the white space at the end
  for (Char c = char_at(at_); c.kind != CharClass::none; c = char_at(c.end)) {
    if (c.kind != CharClass::space) begin = c.end;
  }
  return begin > at_ ? begin : text_.size();
}

u64 Scanner::newlines_end() const {
  const bool are_newlines = char_at(at_).value == '\n';
  return skip_if(at_, [&](u32 code_point) { return (code_point == '\n') == are_newlines; });
}

u64 Scanner::halved_spaces_end() const {
  // A piece that ends with white space has nothing else; newlines end a piece that has one.
  const Char first = char_at(at_);
  u64 last = text_.size() - 1;
  while (last > at_ && (static_cast<u8>(text_[last]) & 0xC0) == 0x80) --last;
  const Char last_char = char_at(last);
  const bool is_spaces = first.kind == CharClass::space && last_char.kind == CharClass::space;
  if (!is_spaces || last_char.end != text_.size() || is_newline(last_char.value))
    return text_.size();
  constexpr u32 kMost = 512;
  u32 n = 0;
  for (u64 at = at_; n < kMost && at < text_.size(); ++n) at = char_at(at).end;
  u32 n_taken = kMost;
  while (n_taken > n) n_taken /= 2;
  u64 end = at_;
  for (u32 i = 0; i < n_taken; ++i) end = char_at(end).end;
  return end;
}

}  // namespace tarn::text
