#include "runtime/chat/lexer.h"

#include <algorithm>

#include "runtime/chat/characters.h"

namespace tarn::chat {
namespace {

bool is_name_begin(char c) { return is_alpha(c) || c == '_'; }

i32 hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

// The longest first.
constexpr std::string_view kSigns[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                       "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                       ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Each beside the one that ends it.
constexpr std::string_view kBrackets = "()[]{}";
constexpr std::string_view kUnendedBrackets[] = {"a ( without its )", "a [ without its ]",
                                                 "a { without its }"};
constexpr std::string_view kUnopenedBrackets[] = {"a ) without its (", "a ] without its ["};

// The text before a tag, without what the tag takes away.
std::string_view before_tag(std::string_view text, char sign, bool is_print, bool at_line_begin) {
  if (sign == '-') return without_spaces_behind(text);
  if (sign == '+' || is_print) return text;
  const u64 newline = text.rfind('\n');
  const u64 line = newline == text.npos ? 0 : newline + 1;
  if (line == 0 && !at_line_begin) return text;
  return skip_spaces(text, line) == text.size() ? text.substr(0, line) : text;
}

}  // namespace

Lexer::Lexer(std::span<char> source) : bytes_(source.data()) {
  u64 n = 0;
  for (u64 i = 0; i < source.size(); ++i) {
    const bool is_pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (is_pair) continue;
    source[n++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (n > 0 && source[n - 1] == '\n') --n;
  source_ = {source.data(), n};
}

void Lexer::cross(u64 begin, u64 end) {
  line_ += static_cast<u32>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(begin),
                                       source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
}

Token Lexer::make(TokenType type, u64 begin, u64 end) {
  const Token token{.type = type, .text = source_.substr(begin, end - begin), .line = line_};
  cross(begin, end);
  at_ = end;
  return token;
}

Token Lexer::tag_without_end() const {
  return bad(where_ == Where::print ? "a {{ without its }}" : "a {% without its %}", tag_line_);
}

Token Lexer::next() { return where_ == Where::outside ? outside() : inside(); }

Token Lexer::outside() {
  while (at_ < source_.size()) {
    u64 tag = source_.find('{', at_);
    const auto is_tag = [&](u64 at) {
      const char kind = at + 1 < source_.size() ? source_[at + 1] : '\0';
      return kind == '{' || kind == '%' || kind == '#';
    };
    while (tag != source_.npos && !is_tag(tag)) tag = source_.find('{', tag + 1);
    if (tag == source_.npos) return make(TokenType::data, at_, source_.size());

    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const std::string_view whole = source_.substr(at_, tag - at_);
    const std::string_view text = before_tag(whole, sign, kind == '{', at_line_begin_);
    if (!text.empty()) {  // the tag again with the next call
      Token token{.type = TokenType::data, .text = text, .line = line_};
      cross(at_, tag);
      at_ = tag;
      return token;
    }
    cross(at_, tag);
    tag_line_ = line_;
    at_ = tag + (sign == '\0' ? 2 : 3);
    if (kind == '{') {
      where_ = Where::print;
      return make(TokenType::print_begin, tag, at_);
    }
    if (kind == '%') {
      where_ = Where::block;
      const u64 name = skip_spaces(source_, at_);
      if (source_.substr(name, 3) != "raw") return make(TokenType::block_begin, tag, at_);
      u64 end = skip_spaces(source_, name + 3);
      const bool strips = source_.substr(end, 3) == "-%}";
      if (!strips && source_.substr(end, 2) != "%}") return make(TokenType::block_begin, tag, at_);
      end += strips ? 3 : 2;
      if (strips) end = skip_spaces(source_, end);
      cross(at_, end);
      at_ = end;
      where_ = Where::outside;
      at_line_begin_ = source_[at_ - 1] == '\n';
      const Token raw = raw_text();
      if (raw.type == TokenType::bad || !raw.text.empty()) return raw;
      continue;
    }
    const u64 end = source_.find("#}", at_);
    if (end == source_.npos) return bad("a {# without its #}");
    const char last = end > at_ ? source_[end - 1] : '\0';
    u64 next = end + 2;
    if (last == '-') next = skip_spaces(source_, next);
    if (last != '-' && last != '+' && next < source_.size() && source_[next] == '\n') ++next;
    cross(at_, next);
    at_ = next;
    at_line_begin_ = source_[next - 1] == '\n';
  }
  return {.type = TokenType::end, .text = {}, .line = line_};
}

// The text up to {% endraw %}, which it passes.
Token Lexer::raw_text() {
  for (u64 tag = source_.find("{%", at_); tag != source_.npos; tag = source_.find("{%", tag + 2)) {
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const u64 name = skip_spaces(source_, tag + (sign == '\0' ? 2 : 3));
    if (source_.substr(name, 6) != "endraw") continue;
    u64 end = skip_spaces(source_, name + 6);
    const char before = end < source_.size() ? source_[end] : '\0';
    const bool has_sign = before == '-' || before == '+';
    if (source_.substr(end + (has_sign ? 1 : 0), 2) != "%}") continue;
    end += has_sign ? 3 : 2;
    if (before == '-') end = skip_spaces(source_, end);
    if (!has_sign && end < source_.size() && source_[end] == '\n') ++end;
    const std::string_view whole = source_.substr(at_, tag - at_);
    const Token token{.type = TokenType::data,
                      .text = before_tag(whole, sign, false, at_line_begin_),
                      .line = line_};
    cross(at_, end);
    at_ = end;
    at_line_begin_ = source_[end - 1] == '\n';
    return token;
  }
  return bad("a raw without its endraw", tag_line_);
}

// `n_end`: bytes of the tag's end, which is ahead.
Token Lexer::end_of_tag(u64 n_end) {
  const bool is_print = where_ == Where::print;
  const char sign = source_[at_];
  const u64 begin = at_;
  u64 end = at_ + n_end;
  if (sign == '-') end = skip_spaces(source_, end);
  if (sign == '%' && end < source_.size() && source_[end] == '\n') ++end;
  where_ = Where::outside;
  at_line_begin_ = source_[end - 1] == '\n';
  return make(is_print ? TokenType::print_end : TokenType::block_end, begin, end);
}

Token Lexer::inside() {
  const u64 begin = skip_spaces(source_, at_);
  cross(at_, begin);
  at_ = begin;
  if (at_ == source_.size()) {
    return n_brackets_ > 0 ? bracket('\0') : tag_without_end();
  }
  const std::string_view rest = source_.substr(at_);
  if (n_brackets_ == 0) {
    const std::string_view end = where_ == Where::print ? "}}" : "%}";
    if (rest.starts_with(end)) return end_of_tag(2);
    const bool may_plus = where_ == Where::block && rest[0] == '+';
    if ((rest[0] == '-' || may_plus) && rest.substr(1).starts_with(end)) return end_of_tag(3);
  }
  if (rest[0] == '"' || rest[0] == '\'') return literal();
  if (is_digit(rest[0])) return number();
  if (is_name_begin(rest[0])) {
    u64 end = at_ + 1;
    while (end < source_.size() && (is_name_begin(source_[end]) || is_digit(source_[end]))) ++end;
    return make(TokenType::name, at_, end);
  }
  for (const std::string_view sign : kSigns) {
    if (!rest.starts_with(sign)) continue;
    if (kBrackets.find(sign[0]) != std::string_view::npos) return bracket(sign[0]);
    return make(TokenType::sign, at_, at_ + sign.size());
  }
  return bad("a character that has no meaning in a tag");
}

// A bracket that is ahead; '\0' stands for the source's end.
Token Lexer::bracket(char sign) {
  const u64 idx = kBrackets.find(sign);
  const bool opens = sign != '\0' && idx % 2 == 0;
  if (opens) {
    if (n_brackets_ == brackets_.size()) return bad("brackets that nest too deeply");
    brackets_[n_brackets_++] = {.sign = sign, .line = line_};
  } else if (n_brackets_ == 0) {
    return sign == '}' ? tag_without_end() : bad(kUnopenedBrackets[idx / 2]);
  } else {
    const Bracket& open = brackets_[--n_brackets_];
    const u64 wanted = kBrackets.find(open.sign) + 1;
    if (idx != wanted) return bad(kUnendedBrackets[wanted / 2], open.line);
  }
  return make(TokenType::sign, at_, at_ + 1);
}

Token Lexer::number() {
  // Digits with single _ between them.
  const auto digits = [&](u64 at) {
    while (at < source_.size() &&
           (is_digit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  };
  u64 end = digits(at_);
  if (source_[at_] == '0' && end == at_ + 1 && end < source_.size() &&
      is_name_begin(source_[end]) && (source_[end] | 0x20) != 'e') {
    return bad("a number that is not decimal");
  }
  bool is_real = false;
  if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
    is_real = true;
    end = digits(end + 1);
  }
  if (end < source_.size() && (source_[end] | 0x20) == 'e') {
    u64 power = end + 1;
    if (power < source_.size() && (source_[power] == '+' || source_[power] == '-')) ++power;
    if (power < source_.size() && is_digit(source_[power])) {
      is_real = true;
      end = digits(power);
    }
  }
  const bool has_zero_before = source_[at_] == '0' && end > at_ + 1 && !is_real;
  if (has_zero_before && source_.substr(at_, end - at_).find_first_not_of("0_") != source_.npos) {
    return bad("a number that begins with 0");
  }
  const u64 begin = at_;
  u64 n = begin;  // without _
  for (u64 i = begin; i < end; ++i) {
    if (source_[i] != '_') bytes_[n++] = source_[i];
  }
  Token token = make(is_real ? TokenType::real : TokenType::integer, begin, end);
  token.text = token.text.substr(0, n - begin);
  return token;
}

Token Lexer::literal() {
  const char quote = source_[at_];
  u64 end = at_ + 1;
  bool has_escape = false;
  while (end < source_.size() && source_[end] != quote) {
    has_escape |= source_[end] == '\\';
    end += source_[end] == '\\' ? u64{2} : u64{1};
  }
  if (end >= source_.size()) return bad("a text without its closing quote");
  Token token = make(TokenType::text, at_, end + 1);
  token.text = token.text.substr(1, token.text.size() - 2);
  if (!has_escape) return token;
  bool is_good = true;
  const u64 begin = static_cast<u64>(token.text.data() - source_.data());
  token.text = token.text.substr(0, unescape(begin, end, &is_good));
  return is_good ? token : bad("an escape in a text that is not supported");
}

// Python's escapes, in place: each is at least as long as what it stands for. Returns the length.
u64 Lexer::unescape(u64 begin, u64 end, bool* is_good) {
  constexpr std::string_view kFrom = "abfnrtv\\'\"";
  constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
  u64 n = begin;
  for (u64 i = begin; i < end; ++i) {
    if (source_[i] != '\\') {
      bytes_[n++] = source_[i];
      continue;
    }
    const char kind = source_[++i];
    if (kind == '\n') continue;
    if (const u64 at = kFrom.find(kind); at != kFrom.npos) {
      bytes_[n++] = kTo[at];
      continue;
    }
    const u64 n_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (n_digits == 0) {
      // Octal digits, names, and what Python makes of \\ before a character beyond ASCII.
      if (is_digit(kind) || kind == 'N' || static_cast<u8>(kind) >= 0x80) *is_good = false;
      bytes_[n++] = '\\';  // Python leaves what it does not know
      bytes_[n++] = kind;
      continue;
    }
    u64 value = 0;
    for (u64 d = 0; d < n_digits; ++d) {
      const i32 digit = i + 1 < end ? hex_digit(source_[i + 1]) : -1;
      if (digit < 0) {
        *is_good = false;
        return n - begin;
      }
      value = value * 16 + static_cast<u64>(digit);
      ++i;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      *is_good = false;
      return n - begin;
    }
    n += text::encode_utf8(static_cast<u32>(value), bytes_ + n);
  }
  return n - begin;
}

}  // namespace tarn::chat
